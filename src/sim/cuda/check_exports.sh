#!/bin/bash
# check_exports.sh LIBRARY NAMES: the library exports exactly the functions of the toolkit's header and needs nothing but libc.
set -euo pipefail
diff <(nm -D --defined-only "$1" | awk '$2 != "A" {print $3}' | sed 's/@@SIMCUDA_1$//' | LC_ALL=C sort) <(LC_ALL=C sort "$2")
needed=$(readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -v -e '^libc\.so' -e '^libm\.so' -e '^ld-linux' || true)
[ -z "$needed" ] || { echo "needs: $needed"; exit 1; }
readelf -d "$1" | grep -q 'SONAME.*\[libcuda\.so\.1\]' || { echo 'SONAME is not libcuda.so.1'; exit 1; }
