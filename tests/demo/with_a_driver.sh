#!/bin/sh
# with_a_driver.sh TESSERA_SIM DEMO NODE: the demo on a machine that has a driver already; it must not bring its own.
set -eu
state=$(mktemp -d /tmp/tessera-demo-XXXXXX)
trap 'rm -rf "$state"' EXIT INT TERM
TESSERA_STATE=$state/promises "$1" run --node "$3" --state "$state/node" -- python3 "$2" | tee "$state/said"
grep -q '^All [0-9]* claims held' "$state/said"
! grep -q 'simulated' "$state/said"
