#!/usr/bin/env bash
# What must be there before the store of objects starts: its bucket, a folder to the gateway, and Spark's client of it.
set -euo pipefail
for folder in /objects /opt/hadoop-aws; do
  [ -w "$folder" ] || {
    cat >&2 <<MESSAGE
objects-init: expected that uid $(id -u) owns $folder, found uid $(stat --format %u "$folder"): its volume is of a former version.
  Give it over once, as docs/deploy.md says ("Upgrade").
MESSAGE
    exit 2
  }
done
mkdir -p /objects/lake
exec scripts/hadoop_aws.sh /opt/hadoop-aws
