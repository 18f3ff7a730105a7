#!/usr/bin/env bash
# infra/restore.sh FOLDER: make the databases and buckets of the stack those of a backup. The
# services that use them must be stopped. Settings: those of infra/backup.sh, with a key that writes.
set -euo pipefail
folder="${1:?usage: infra/restore.sh FOLDER}"
read -ra postgres <<<"${POSTGRES-docker compose exec -T postgres}"
gzip --test "$folder/mlflow.sql.gz" "$folder/prefect.sql.gz"
psql=("${postgres[@]}" psql --username=papa --quiet --set=ON_ERROR_STOP=1)
connected="$("${psql[@]}" --dbname=postgres --tuples-only --no-align --command="
  SELECT DISTINCT datname FROM pg_stat_activity WHERE datname IN ('mlflow', 'prefect')")"
if [[ "$connected" ]]; then
  echo "restore.sh: services use the databases ${connected//$'\n'/, }:" \
    "docker compose stop mlflow prefect-server prefect-worker" >&2
  exit 1
fi
for database in mlflow prefect; do
  gzip --decompress --stdout "$folder/$database.sql.gz" |
    "${psql[@]}" --dbname="$database" --output=/dev/null --single-transaction --file=-
done
for bucket in papa mlflow; do
  "${PYTHON:-python3}" - "$folder/$bucket" "$bucket" <<'EOF'
import os, sys
from s3fs import S3FileSystem

folder, bucket = sys.argv[1:]
storage = S3FileSystem()
if objects := storage.find(bucket):
    storage.rm(objects)
if os.listdir(folder):
    storage.put(f"{folder}/", f"{bucket}/", recursive=True)
EOF
done
