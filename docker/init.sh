#!/usr/bin/env bash
# What must be there before Airflow's services start: the login and the metadata database.
set -euo pipefail
umask 077
python -c 'import json, os; print(json.dumps({"admin": os.environ["ADMIN_PASSWORD"]}))' \
  >"$AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"
exec airflow db migrate
