#!/usr/bin/env bash
# Spark's client of stores that speak S3, of the version of Spark's own Hadoop, and the jars that it names (0.7 GB):
#   scripts/hadoop_aws.sh FOLDER    and then SPARK_DIST_CLASSPATH='FOLDER/*' where Airflow's and Spark's workers start
# Needs the Python that has PySpark on PATH, and Maven's repository, or the mirror that DEFAULT_ARTIFACT_REPOSITORY names.
set -euo pipefail

if [ $# != 1 ]; then
  sed -n '2,4s/^# //p' "$0" >&2
  exit 2
fi
mkdir -p "$1"
folder=$(cd "$1" && pwd)
if compgen -G "$folder/org.apache.hadoop_hadoop-aws-*.jar" >/dev/null; then
  exit 0
fi
SPARK_HOME=$(python -c 'import importlib.util as u; print(u.find_spec("pyspark").submodule_search_locations[0])')
export SPARK_HOME
version=$(basename "$SPARK_HOME"/jars/hadoop-client-api-*.jar .jar)
version=${version#hadoop-client-api-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
: >"$work/nothing.py" # Spark resolves packages for what it is to run, so it gets nothing to run
# Spark looks into ~/.m2 first, and fails on a POM there whose jar is missing.
export SPARK_SUBMIT_OPTS="${SPARK_SUBMIT_OPTS:-} -Duser.home=\"$work\""
if ! "$SPARK_HOME/bin/spark-submit" --master 'local[1]' --conf "spark.jars.ivy=$work/ivy" \
  --packages "org.apache.hadoop:hadoop-aws:$version" "$work/nothing.py" >"$work/log" 2>&1; then
  tail -n 40 "$work/log" >&2
  echo "hadoop_aws: Spark could not resolve org.apache.hadoop:hadoop-aws:$version and what it names" >&2
  exit 1
fi
client="org.apache.hadoop_hadoop-aws-$version.jar"
find "$work/ivy/jars" -name '*.jar' ! -name "$client" -exec mv {} "$folder/" ';'
mv "$work/ivy/jars/$client" "$folder/" # last: it says that all are there
