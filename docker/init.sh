#!/usr/bin/env bash
# What must be there before Airflow's services start: the modes of the volumes, the login and the metadata database.
set -euo pipefail

# Volumes of former versions could be read by everybody. The folder itself is last: its mode says that the rest is done.
for folder in "$FLOODMARK_HOME" /data/lake "$AIRFLOW_HOME/logs" "$AIRFLOW_HOME/login"; do
  [ "$(stat --format %a "$folder")" != 750 ] || continue
  echo "init: taking the rights of others from $folder"
  # A run of a container that is still up may take files away meanwhile; those need nothing.
  find "$folder" -ignore_readdir_race -mindepth 1 -not -type l -perm /o=rwx -exec chmod --silent o= {} + || :
  chmod 750 "$folder"
done

umask 077
python -c 'import json, os; print(json.dumps({"admin": os.environ["ADMIN_PASSWORD"]}))' \
  >"$AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"
exec airflow db migrate
