#!/bin/sh
# behind_the_fence.sh TESSERA_SIM TESSERA MIB PROGRAM [ARG...]: runs PROGRAM in a slice of MIB on a simulated A10G of its own.
set -eu
sim=$1 tessera=$2 mib=$3
shift 3
state=$(mktemp -d /tmp/tessera-test-XXXXXX)
trap 'rm -rf "$state"' EXIT INT TERM
TESSERA_STATE=$state/promises "$sim" run --node a10g --state "$state/node" -- \
  "$tessera" run --mem "$mib" --require-fence -- "$@"
