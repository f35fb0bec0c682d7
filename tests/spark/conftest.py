"""One Spark session for all tests of this level."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from support.flow import Flow

from floodmark.spark.session.session import root_session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Some hundred tests leave more in its memory than one rule's default has room for."""
    roomy = Flow(tmp_path_factory.mktemp("session"), settings={"spark": {"driver_memory": "2g"}}).rule()
    session = root_session("local[2]", [roomy])  # for as long as it lives, the second compiler pays
    session.conf.set("spark.sql.shuffle.partitions", "2")
    session.conf.set("spark.sql.session.timeZone", "UTC")
    yield session
    session.stop()
