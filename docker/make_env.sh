#!/bin/sh
# Write .env beside docker-compose.yaml: docker/.env.example with fresh secrets, for your user alone to read.
set -eu
cd "$(dirname "$0")/.."
if [ -e .env ]; then
  echo "make_env: expected no .env, found one. It is kept: its secrets fit the volumes that were made with it" >&2
  exit 2
fi
umask 077
random() { head -c "$1" /dev/urandom; }
while IFS= read -r line; do
  case $line in
    FERNET_KEY=) line=$line$(random 32 | base64 | tr '+/' '-_') ;;
    [A-Z]*=) line=$line$(random 24 | od -An -v -tx1 | tr -d ' \n') ;;
  esac
  printf '%s\n' "$line"
done <docker/.env.example >.env.new
mv .env.new .env
echo "make_env: wrote .env; the login is admin, with its ADMIN_PASSWORD" >&2
