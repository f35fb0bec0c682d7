#!/bin/sh
# Every container of the image starts with this, and then becomes the command that it is given. So does what
# `docker compose exec SERVICE docker/enter.sh COMMAND` adds, so that its files get the same modes.
set -eu
umask 027 # files for the user and the group, for nobody else
# A container that was killed and starts again has the scratch files of its former processes still. The container starts
# with process 1 or its child; a command that `docker compose exec` adds to a running one has files of runs there.
if [ $$ = 1 ] || [ "$PPID" = 1 ]; then
  find /tmp -mindepth 1 -maxdepth 1 -user "$(id -u)" -exec rm -rf {} +
fi
exec "$@"
