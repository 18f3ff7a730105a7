#!/usr/bin/env bash
# A container's entry: its command, with each file of /run/secrets as the variable of its name.
#   SECRETS  another folder
set -euo pipefail
for file in "${SECRETS:-/run/secrets}"/*; do
  if [[ -f "$file" ]]; then
    value="$(<"$file")"
    export "${file##*/}=$value"
  fi
done
exec "$@"
