#!/usr/bin/env bash
# MLflow's tracking server: runs in a database, files in an object store that only this server
# reaches.
#   MLFLOW_BACKEND_STORE_URI      postgresql://user:password@host/database (or PGPASSWORD)
#   MLFLOW_ARTIFACTS_DESTINATION  s3://bucket/folder (with AWS_* and MLFLOW_S3_ENDPOINT_URL)
#   MLFLOW_FLASK_SERVER_SECRET_KEY, MLFLOW_AUTH_ADMIN_USERNAME, MLFLOW_AUTH_ADMIN_PASSWORD
#   MLFLOW_HOST, MLFLOW_PORT, MLFLOW_SERVER_ALLOWED_HOSTS, MLFLOW_SERVER_CORS_ALLOWED_ORIGINS
set -euo pipefail
: "${MLFLOW_BACKEND_STORE_URI:?}" "${MLFLOW_ARTIFACTS_DESTINATION:?}"
: "${MLFLOW_FLASK_SERVER_SECRET_KEY:?}" "${MLFLOW_AUTH_ADMIN_USERNAME:?}"
: "${MLFLOW_AUTH_ADMIN_PASSWORD:?}"
export MLFLOW_DISABLE_TELEMETRY=true MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false

# Users are kept beside the runs; MLflow takes that address from a file only. It lies in memory, as
# /tmp is on the disk, and has no name, so that nothing is left when the server ends.
umask 077
file="$(mktemp --tmpdir="$(test -w /dev/shm && echo /dev/shm)")"
exec 3<>"$file"
rm "$file"
cat >&3 <<EOF
[mlflow]
default_permission = NO_PERMISSIONS
database_uri = ${MLFLOW_BACKEND_STORE_URI//%/%%}
EOF
# The server's process is this one, and its workers read the file through it.
export MLFLOW_AUTH_CONFIG_PATH="/proc/$$/fd/3"

exec mlflow server --app-name basic-auth --workers "${MLFLOW_WORKERS:-2}"
