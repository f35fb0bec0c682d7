"""The Compose file: valid by the specification's own schema, whole, and without a secret in it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from floodmark.core.rules.model import SparkSettings

CHECKOUT = Path(__file__).parents[2]
TEXT = (CHECKOUT / "docker-compose.yaml").read_text()
VARIABLE = re.compile(r"(?<!\$)\$\{(\w+)(:[-?][^}]*)?\}")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(TEXT)
    return found


@pytest.fixture(scope="module")
def objects() -> dict[str, Any]:
    """What the lake in a store of objects adds to it."""
    found: dict[str, Any] = yaml.safe_load((CHECKOUT / "docker" / "objects.yaml").read_text())
    return found


@pytest.fixture(scope="module")
def images(compose: dict[str, Any]) -> dict[str, Any]:
    """The services that run our image."""
    return {name: one for name, one in compose["services"].items() if "floodmark-airflow" in one["image"]}


@pytest.fixture(scope="module")
def spark(images: dict[str, Any]) -> dict[str, Any]:
    """Those of a Spark cluster."""
    return {name: one for name, one in images.items() if name.startswith("spark-")}


@pytest.fixture(scope="module")
def ours(images: dict[str, Any]) -> dict[str, Any]:
    """Those with Airflow's settings."""
    return {name: one for name, one in images.items() if name.startswith("airflow-")}


def validator() -> jsonschema.Draft7Validator:
    return jsonschema.Draft7Validator(json.loads(Path(__file__).with_name("compose-spec.json").read_text()))


def test_it_is_valid_by_the_compose_specification(compose: dict[str, Any]) -> None:
    assert [f"{'/'.join(map(str, fault.path))}: {fault.message}" for fault in validator().iter_errors(compose)] == []


def test_the_schema_would_find_a_fault(compose: dict[str, Any]) -> None:
    services = {**compose["services"], "postgres": {"imagine": "postgres:16"}}
    assert not validator().is_valid({**compose, "services": services})


def test_airflow_is_complete(ours: dict[str, Any]) -> None:
    commands = {name: one["command"] for name, one in ours.items()}
    assert {command[1] for command in commands.values() if command[0] == "airflow"} == {
        "api-server",
        "scheduler",
        "dag-processor",
        "triggerer",
    }
    assert "airflow-init" in commands


def test_services_that_stay_are_watched(compose: dict[str, Any]) -> None:
    unwatched = [
        name for name, one in compose["services"].items() if one["restart"] != "no" and "healthcheck" not in one
    ]
    assert unwatched == []


def test_all_share_one_lake_one_home_and_one_secret(ours: dict[str, Any]) -> None:
    for one in ours.values():
        assert {"lake:/data/lake", "home:/data/home"} <= set(one["volumes"])
        assert one["environment"]["LAKE"] == "/data/lake"
        assert one["environment"]["FLOODMARK_HOME"] == "/data/home"
        assert one["environment"]["AIRFLOW__API_AUTH__JWT_SECRET"].startswith("${JWT_SECRET:?")


def test_executors_see_lake_and_home_where_the_driver_does(spark: dict[str, Any], ours: dict[str, Any]) -> None:
    for one in spark.values():
        assert {"lake:/data/lake", "home:/data/home"} <= {
            volume for volume in one["volumes"] if isinstance(volume, str)
        }
        assert one["image"] == ours["airflow-init"]["image"]


def test_one_service_builds_the_image_and_all_others_wait_for_it(images: dict[str, Any]) -> None:
    """Several that build one tag at a time fail ("already exists"); and no registry has it."""
    assert [name for name, one in images.items() if "build" in one] == ["airflow-init"]
    policies = {name: one["pull_policy"] for name, one in images.items()}
    assert policies.pop("airflow-init") == "build"
    assert set(policies.values()) == {"never"}


def test_the_database_is_not_called_ready_while_it_is_being_made(compose: dict[str, Any]) -> None:
    """Then it listens on its socket alone."""
    test = compose["services"]["postgres"]["healthcheck"]["test"]
    assert test[:4] == ["CMD", "pg_isready", "-h", "127.0.0.1"]


def test_the_head_says_what_memory_so_many_drivers_need(ours: dict[str, Any]) -> None:
    heap = int(SparkSettings().driver_memory.removesuffix("g"))
    given = ours["airflow-scheduler"]["environment"]["AIRFLOW__CORE__PARALLELISM"]
    at_a_time = re.fullmatch(r"\$\{PARALLELISM:-(\d+)\}", given)
    assert at_a_time
    said = re.search(r"give Docker (\d+) GB", TEXT.split("name: floodmark")[0])
    assert said and int(said[1]) >= int(at_a_time[1]) * (heap + 1)


def test_the_image_gets_the_archive_of_sparks_classes() -> None:
    """It is made by a run of a rule: set-up makes none before the sources are there."""
    text = (CHECKOUT / "docker" / "Dockerfile").read_text()
    stage = text[text.index("FROM packages AS jars") : text.index("\nFROM base\n")].splitlines()
    assert stage.index("RUN scripts/setup.sh image") > stage.index("COPY jobs jobs")
    assert "COPY --from=jars /opt/floodmark/.cache/classes .cache/classes" in text


def test_executors_get_sparks_secret_alone_and_nobody_outside_reaches_them(spark: dict[str, Any]) -> None:
    secrets = {name for name, rest in VARIABLE.findall(str(list(spark.values()))) if rest.startswith(":?")}
    assert secrets == {"SPARK_SECRET"}
    assert not any("ports" in one for one in spark.values()), "who reaches a master may run what he likes"
    assert set(spark) == {"spark-master", "spark-worker"}
    assert spark["spark-worker"]["deploy"]["replicas"] == 2
    assert all(one["profiles"] == ["cluster"] for one in spark.values())


def test_the_master_that_the_example_names_is_the_one_that_listens(spark: dict[str, Any]) -> None:
    command = spark["spark-master"]["command"]
    url = f"spark://{command[command.index('--host') + 1]}:{command[command.index('--port') + 1]}"
    assert spark["spark-worker"]["command"][-1] == url
    assert f"SPARK_MASTER={url}" in (CHECKOUT / "docker" / ".env.example").read_text()
    assert url in TEXT.split("name: floodmark")[0]


def test_every_named_volume_is_declared(compose: dict[str, Any]) -> None:
    named = [v for one in compose["services"].values() for v in one.get("volumes", []) if isinstance(v, str)]
    used = {volume.split(":")[0] for volume in named}
    assert {name for name in used if not name.startswith(".")} == set(compose["volumes"])


def test_every_variable_without_a_default_is_in_the_example_and_empty_there() -> None:
    both = TEXT + (CHECKOUT / "docker" / "objects.yaml").read_text()
    required = {name for name, rest in VARIABLE.findall(both) if not rest.startswith(":-")}
    lines = (CHECKOUT / "docker" / ".env.example").read_text().splitlines()
    given = dict(line.split("=", 1) for line in lines if re.match(r"[A-Z_]+=", line))
    assert set(given) == required
    assert set(given.values()) == {""}


def test_the_spark_connection_is_local_unless_told_otherwise(ours: dict[str, Any]) -> None:
    for one in ours.values():
        text = one["environment"]["AIRFLOW_CONN_SPARK_DEFAULT"].replace("${SPARK_MASTER:-local[*]}", "local[*]")
        assert json.loads(text) == {"conn_type": "spark", "host": "local[*]"}


def test_what_the_image_copies_and_the_services_start_exists(ours: dict[str, Any], images: dict[str, Any]) -> None:
    lines = (CHECKOUT / "docker" / "Dockerfile").read_text().splitlines()
    copies = [line.split()[1:-1] for line in lines if line.startswith("COPY") and "--from" not in line]
    files = [name for names in copies for name in names]
    files += [one["command"][1] for one in images.values() if one["command"][0] in ("bash", "python")]
    files += [ours["airflow-init"]["build"]["dockerfile"]]
    assert [name for name in files if not (CHECKOUT / name).exists()] == []
    kept = (CHECKOUT / "docker" / "Dockerfile.dockerignore").read_text().split()
    assert [n for names in copies for n in names if not any(n.startswith(k[1:]) for k in kept if k[0] == "!")] == []


def test_a_lake_in_a_store_of_objects_is_valid_and_whole(compose: dict[str, Any], objects: dict[str, Any]) -> None:
    assert [fault.message for fault in validator().iter_errors(objects)] == []
    added = {"objects", "objects-init"}
    assert objects["services"].keys() - compose["services"].keys() == added
    named = {v.split(":")[0] for one in objects["services"].values() for v in one["volumes"] if not v.startswith("./")}
    assert named == set(objects["volumes"])


def test_spark_knows_its_applications_by_a_secret(spark: dict[str, Any], ours: dict[str, Any]) -> None:
    """The literal text of the driver's option is no secret: Spark takes _SPARK_AUTH_SECRET before it."""
    for one in spark.values():
        assert "-Dspark.authenticate=true" in one["environment"]["SPARK_DAEMON_JAVA_OPTS"].split()
    assert "-Dspark.master.rest.enabled=false" in spark["spark-master"]["environment"]["SPARK_DAEMON_JAVA_OPTS"].split()
    scheduler = ours["airflow-scheduler"]["environment"]
    assert {"-Dspark.authenticate=true", "-Dspark.authenticate.secret=$${env:_SPARK_AUTH_SECRET}"} <= set(
        scheduler["SPARK_SUBMIT_OPTS"].split()
    )
    environments = [scheduler, *(one["environment"] for one in spark.values())]
    assert len({one["_SPARK_AUTH_SECRET"] for one in environments}) == 1


def test_no_folder_of_settings_is_on_sparks_class_path(ours: dict[str, Any]) -> None:
    """With one, the JVM would leave the archive of Spark's classes unused, without a word."""
    assert [name for name, one in ours.items() if "SPARK_CONF_DIR" in one["environment"]] == []


def test_who_reads_the_lake_is_told_where_its_store_is(ours: dict[str, Any], objects: dict[str, Any]) -> None:
    readers = {name for name, one in objects["services"].items() if "LAKE" in one.get("environment", {})}
    airflows = {name for name, one in ours.items() if one["command"][0] == "airflow"}
    assert readers == airflows | {"spark-worker", "flights-first", "flights"}
    text = (CHECKOUT / "docker/objects/spark-defaults.conf").read_text()
    conf = dict(line.split() for line in text.splitlines() if line.startswith("spark."))
    for name in readers:
        environment = objects["services"][name]["environment"]
        assert environment["AWS_ENDPOINT_URL"] == conf["spark.hadoop.fs.s3a.endpoint"] == "http://objects:7070"
        assert environment["AWS_REGION"] == conf["spark.hadoop.fs.s3a.endpoint.region"]
        assert environment["AWS_SECRET_ACCESS_KEY"].startswith("${OBJECTS_SECRET:?")
