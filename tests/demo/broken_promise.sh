#!/bin/sh
# broken_promise.sh DEMO: the demo fails, and says which claim did not hold, when a promise does not hold: here the command
# that changes a limit does nothing.
set -eu
folder=$(mktemp -d /tmp/tessera-demo-XXXXXX)
trap 'rm -rf "$folder"' EXIT INT TERM
cat >"$folder/tessera" <<'INNER'
#!/bin/sh
[ "$1" = limit ] && exit 0
exec "$REAL_TESSERA" "$@"
INNER
chmod +x "$folder/tessera"
code=0
TESSERA_DEMO_PROGRAM=$folder/tessera python3 "$1" >"$folder/said" || code=$?
cat "$folder/said"
[ "$code" -ne 0 ]
grep -q 'claims above did not hold:' "$folder/said"
grep -q '\[NOT TRUE\] it got' "$folder/said"
