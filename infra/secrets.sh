#!/usr/bin/env bash
# infra/secrets.sh [FOLDER]: a random value for each secret of docker-compose.yml that has none yet.
# The folder is for its owner alone; its files are for containers too, which run as other users.
set -euo pipefail
cd "$(dirname "$0")/.."
folder="${1:-secrets}"
mkdir -p "$folder"
chmod 700 "$folder"
umask 022
sed -n 's|.*{file: \./secrets/\([a-z0-9_]*\)}.*|\1|p' docker-compose.yml | while read -r name; do
  if [[ -s "$folder/$name" ]]; then continue; fi
  value="$(openssl rand -hex 24)"
  if [[ "$name" == *_login ]]; then value="papa:$value"; fi
  echo "$value" >"$folder/$name"
done
