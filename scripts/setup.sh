#!/usr/bin/env bash
# All that a make target needs before it runs; silent and quick when there is nothing to do.
#   scripts/setup.sh              Java checked; .venv, the floodmark command and the jars of Delta, Kafka and Avro made
#   scripts/setup.sh airflow-db   the same, and the metadata database of the embedded Airflow
#   scripts/setup.sh lock         the same, and requirements*.txt written anew from requirements*.in
#   scripts/setup.sh packages     for an image: Java checked, and .venv made with what runs need alone, before any source
#   scripts/setup.sh image        for an image, after that: the jars, and the archive of Spark's classes
# It writes below the checkout only (the tools' own download caches aside), and names no registry: where
# packages and jars come from is the business of the user's settings for pip, uv and Ivy.
set -euo pipefail
cd -P "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD

say() { printf 'setup: %s\n' "$*" >&2; }
refuse() { say "$@"; exit 2; }
sha256() { if command -v sha256sum >/dev/null; then sha256sum "$@"; else shasum -a 256 "$@"; fi; }
hash_of() { { cat "$@"; printf '%s' "$root"; } | sha256 | cut -d' ' -f1; }
is_current() { [ -f "$1" ] && [ "$(<"$1")" = "$2" ]; }

# --- Java: first, for nobody should wait for packages only to learn that Java is missing

check_java() {
  local java='' found='' report='' major=''
  if [ -n "${JAVA_HOME:-}" ]; then
    java=$JAVA_HOME/bin/java
    [ -x "$java" ] || found="JAVA_HOME is $JAVA_HOME, which holds no bin/java"
  else
    java=$(command -v java) || found='no java on PATH, and JAVA_HOME is not set'
  fi
  if [ -z "$found" ]; then
    report=$("$java" -version 2>&1) || true # macOS has a java that only says that there is none
    major=$(sed -n '/ version "/{s/.* version "\([0-9]*\).*/\1/p;q;}' <<<"$report")
    case $major in 17 | 21) return ;; esac
    found="$java says: $(grep -m1 ' version "' <<<"$report" || head -n1 <<<"$report")"
  fi
  cat >&2 <<MESSAGE
setup: Floodmark needs Java 17 or 21.
  found:          $found
  Debian/Ubuntu:  sudo apt-get install openjdk-17-jre-headless
  macOS:          brew install openjdk@17
                  export JAVA_HOME="\$(brew --prefix openjdk@17)/libexec/openjdk.jdk/Contents/Home"
  With several on the machine, JAVA_HOME says which one to use.
MESSAGE
  exit 2
}

# --- Python: .venv, from the hashed lock

find_python() {
  local python
  if [ -n "${PYTHON:-}" ]; then set -- "$PYTHON"; else set -- python3 python3.11 python3.12 python3.13; fi
  for python in "$@"; do
    if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      command -v "$python"
      return
    fi
  done
  refuse "Floodmark needs Python 3.11 or newer; tried $*. PYTHON=/path/to/python3 names another."
}

# A .venv holds absolute paths: one that was moved along with its checkout is of no use.
venv_is_sound() {
  [ -x .venv/bin/python ] && grep -qsF "$root/.venv/" .venv/bin/pip || return 1
  local version='import sys; print(sys.version_info[:3])'
  [ -z "${PYTHON:-}" ] || [ "$("$PYTHON" -c "$version")" = "$(.venv/bin/python -c "$version")" ]
}

make_venv() {
  local python
  python=$(find_python)
  say "making .venv with $python"
  "$python" -m venv --clear "$root/.venv" ||
    refuse "$python cannot make a virtual environment (on Debian/Ubuntu: sudo apt-get install python3-venv)"
}

pip() { .venv/bin/python -m pip --disable-pip-version-check "$@"; }

# uv reads none of pip's settings. A user who told only pip of a mirror has told Floodmark's set-up of it too.
pass_pip_settings_to_uv() {
  local settings variable key section value
  settings=$(pip config list)
  while read -r variable key; do
    [ -z "${!variable:-}" ] || continue
    for section in :env: install global; do # as pip ranks them
      value=$(sed -n "s/^$section\.$key='\(.*\)'\$/\1/p" <<<"$settings")
      value=${value//\\n/ }
      value=${value#"${value%%[! ]*}"}
      [ -z "$value" ] || break
    done
    [ "$variable" != UV_FIND_LINKS ] || value=${value// /,}
    [ -z "$value" ] || export "$variable=$value"
  done <<'TABLE'
UV_DEFAULT_INDEX index-url
UV_EXTRA_INDEX_URL extra-index-url
UV_FIND_LINKS find-links
UV_NO_INDEX no-index
UV_INSECURE_HOST trusted-host
UV_HTTP_TIMEOUT default-timeout
UV_HTTP_TIMEOUT timeout
SSL_CERT_FILE cert
SSL_CLIENT_CERT client-cert
ALL_PROXY proxy
TABLE
}

uv_knows_an_index() {
  [ -n "${UV_INDEX_URL:-}${UV_DEFAULT_INDEX:-}${UV_INDEX:-}${UV_EXTRA_INDEX_URL:-}${UV_FIND_LINKS:-}${UV_NO_INDEX:-}" ] ||
    [ -n "${UV_CONFIG_FILE:-}" ] || [ -e "${XDG_CONFIG_HOME:-$HOME/.config}/uv/uv.toml" ] || [ -e /etc/uv/uv.toml ]
}

find_uv() {
  command -v uv && return
  if [ ! -x .venv/bin/uv ]; then
    sed -n '/^uv==/,/^    # via/p' requirements-dev.txt >.venv/uv.txt
    pip install --quiet --require-hashes -r .venv/uv.txt >&2 || return 1
  fi
  echo .venv/bin/uv
}

install_packages() (
  local uv requirements=("${locks[@]/#/-r}")
  [ -t 2 ] || requirements+=(--quiet) # progress is for people who watch
  say 'installing the locked packages into .venv'
  export TMPDIR=$root/.cache/tmp.$$ # uv leaves lock files in it
  mkdir -p "$TMPDIR"
  trap 'rm -rf "$TMPDIR"' EXIT
  if uv=$(find_uv); then
    uv_knows_an_index || pass_pip_settings_to_uv
    # Compiled now, as pip does: Airflow and Spark start many a Python, each of which would compile again.
    "$uv" pip install --python .venv/bin/python --compile-bytecode --require-hashes "${requirements[@]}" && return
    say 'uv could not install them; trying pip'
  fi
  pip install --require-hashes "${requirements[@]}"
)

lock() (
  local name
  uv_knows_an_index || pass_pip_settings_to_uv
  for name in requirements requirements-dev; do
    .venv/bin/uv pip compile "$name.in" --universal --python-version 3.11 --generate-hashes \
      --no-emit-index-url --no-emit-find-links --quiet -o "$name.txt"
  done
)

# jobs/ and plugins/ stay where they are and are importable; the command is a door to floodmark.cli.
link_sources() {
  local site
  site=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  printf '%s\n' "$root/jobs" "$root/plugins" >"$site/floodmark.pth"
  # /bin/sh and exec, since a #! line can hold neither a long path nor a space.
  cat >.venv/bin/floodmark <<LAUNCHER
#!/bin/sh
'''exec' "$root/.venv/bin/python" "\$0" "\$@"
' '''
import sys

from floodmark.cli import main

sys.exit(main())
LAUNCHER
  chmod +x .venv/bin/floodmark
}

ensure_venv() {
  local stamp=.venv/.floodmark-setup key
  key=$(hash_of "${locks[@]}" scripts/setup.sh)
  venv_is_sound && is_current "$stamp" "$key" && return
  venv_is_sound || make_venv
  install_packages
  [ ! -f .venv/uv.txt ] || [ ${#locks[@]} != 1 ] || pip uninstall --quiet --yes uv # it came for the installation alone
  link_sources
  printf '%s' "$key" >"$stamp"
}

# --- The jars of Delta, Kafka and Avro, through Spark's own resolver: `floodmark jars`

ensure_jars() (
  jars_are_sound() { (cd .cache/jars 2>/dev/null && sha256 --status -c "$root/jobs/floodmark/core/application/jars.sha256" 2>/dev/null); }
  jars_are_sound && return
  say "resolving the jars of Delta, Kafka and Avro"
  unset FLOODMARK_JARS
  PYTHONPATH=$root/jobs .venv/bin/python -c 'import sys; from floodmark.cli import main; sys.exit(main())' jars >&2
)

# --- The class-data archive: a JVM that starts with it need not load and verify Spark's classes one by one

ensure_archive() (
  local stamp=.cache/classes/stamp work=$root/.cache/classes.$$ key
  # It fits one Java, and jars of one age: a .venv made anew needs another.
  key=$("${JAVA_HOME:+$JAVA_HOME/bin/}java" -version 2>&1; cat .venv/.floodmark-setup scripts/archive.py; ls -ldn .venv/bin)
  [ -f .cache/classes/floodmark.jsa ] && is_current "$stamp" "$key" && return
  say "making the archive of Spark's classes, for quick starts"
  mkdir -p "$work" .cache/classes
  trap 'rm -rf "$work"' EXIT
  unset SPARK_HOME # another Spark's classes are of no use, and an empty name is taken for one
  export PYTHONPATH=$root/jobs PYSPARK_PYTHON=$root/.venv/bin/python PYSPARK_DRIVER_PYTHON=$root/.venv/bin/python
  if ! .venv/bin/python scripts/archive.py "$work" >"$work/log" 2>&1; then
    tail -n 20 "$work/log" >&2
    say 'there is none now; runs start slower, no more. The next set-up tries again.'
    return
  fi
  printf '%s' "$key" >"$stamp"
)

# The archive fits jars of one age. A builder of images takes a layer that differs by the age of its files alone for the
# same, and keeps the older one: so jars of an image have a fixed age.
date_jars() { find "$1" -name '*.jar' -exec touch -d 2001-01-01T00:00:00Z {} +; }

# --- The embedded Airflow's database

ensure_airflow_db() (
  local stamp=.airflow/.floodmark-db key variable
  key=$(hash_of requirements.txt)
  [ -f .airflow/airflow.db ] && is_current "$stamp" "$key" && return
  say "making Airflow's database in .airflow"
  mkdir -p .airflow
  # Settings for another Airflow that this shell may carry must not lead the migration to its database.
  for variable in $(compgen -e AIRFLOW__ || true); do unset "$variable"; done
  export AIRFLOW_HOME=$root/.airflow AIRFLOW__CORE__LOAD_EXAMPLES=False
  .venv/bin/airflow db migrate >.airflow/migrate.log 2>&1 || { tail -n 40 .airflow/migrate.log >&2; exit 1; }
  printf '%s' "$key" >"$stamp"
)

PATH=${PATH//"$root/.venv/bin:"/} # .venv is not made with the Python in it
unset PYTHONPATH PYTHONHOME
locks=(requirements.txt requirements-dev.txt)
case ${1:-} in packages | image) locks=(requirements.txt) ;; esac # no tools of tests and checks
check_java
ensure_venv
[ "${1:-}" != packages ] || { date_jars .venv; exit 0; }
ensure_jars
[ "${1:-}" != image ] || date_jars .cache/jars
ensure_archive
case ${1:-} in
  '' | image) ;;
  airflow-db) ensure_airflow_db ;;
  lock) lock ;;
  *) refuse "unknown argument $1; there are airflow-db, image, lock and packages" ;;
esac
