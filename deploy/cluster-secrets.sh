#!/bin/sh
# Makes what compose.cluster.yaml needs to be secret, in a folder that is not there yet; for the container's user alone.
#
#   deploy/cluster-secrets.sh FOLDER [weft]     weft: how the command is called here, as for `weft cluster init`
set -eu
folder=${1:?name the folder, as in: deploy/cluster-secrets.sh deploy/secrets}
weft=${2:-weft}
umask 077
mkdir "$folder"
openssl rand -hex 32 > "$folder/api-keys"
openssl rand -hex 24 > "$folder/broker-password"
printf 'redis://:%s@broker:6379/0\n' "$(cat "$folder/broker-password")" > "$folder/broker"
"$weft" cluster init --quiet --key-file "$folder/cluster-key"
echo "made in $folder; for the containers: sudo chown -R 10001:10001 $folder"
