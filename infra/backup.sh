#!/usr/bin/env bash
# infra/backup.sh FOLDER: save the databases and buckets of the stack into a new folder.
#   AWS_*     where the buckets are, with a key that reads all of them
#   PYTHON    a Python with s3fs (python3), as of pip install 'papa-attention[s3]'
#   POSTGRES  the command by which a program runs beside PostgreSQL
#             (docker compose exec -T postgres); empty: on this machine, with PGHOST, PGPASSWORD …
set -euo pipefail
folder="${1:?usage: infra/backup.sh FOLDER}"
read -ra postgres <<<"${POSTGRES-docker compose exec -T postgres}"
umask 077
mkdir "$folder"
# Databases first: what they refer to is then among the objects.
for database in mlflow prefect; do
  "${postgres[@]}" pg_dump --username=papa --clean --if-exists "$database" |
    gzip >"$folder/$database.sql.gz"
done
for bucket in papa mlflow; do
  mkdir "$folder/$bucket"
  "${PYTHON:-python3}" - "$bucket" "$folder/$bucket" <<'EOF'
import sys
from s3fs import S3FileSystem

bucket, folder = sys.argv[1:]
storage = S3FileSystem()
if storage.ls(bucket):
    storage.get(f"{bucket}/", f"{folder}/", recursive=True)
EOF
done
