"""One Spark session for all tests of this level."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from floodmark.spark.session import root_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = root_session("local[2]", [])  # for as long as it lives, the second compiler pays
    session.conf.set("spark.sql.shuffle.partitions", "2")
    session.conf.set("spark.sql.session.timeZone", "UTC")
    yield session
    session.stop()
