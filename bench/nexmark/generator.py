"""Generate Nexmark's events with Spark: persons, auctions and bids in proportions 1 : 3 : 46, each in a Delta table.

Every value is a function of the seed and the event's number, so the input is the same in every run and at every
parallelism. Event time grows with the number and is disturbed by less than `DISORDER_MS`, so that with `LATENESS`
nothing is late. Three of four bids go to one of a few hot auctions, and most come from a few hot bidders.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

BEGIN_MS = 1_700_000_040_000  # a full minute
STEP_MS = 20  # event time between two events
DISORDER_MS = 2_000
LATENESS = "3 seconds"
TABLES = ("person", "auction", "bid")
_BLOCK = 50  # events: a person, three auctions, and bids
_ACTIVE = 100  # auctions, and persons, that are not hot and still get bids, or make them
_FIRST_ID = 1000
_SIDE = 10_000  # rows of the table that q13 looks auctions up in


def write_tables(spark: SparkSession, folder: Path, events: int, seed: int = 1, commits: int = 3) -> None:
    """Write the three tables below `folder`, in `commits` commits; version 0 of each is empty. Also write `side_input`.

    The place of event n in its block of fifty decides whether it is a person, an auction or a bid.
    """
    side = spark.range(0, _SIDE, 1, 1).selectExpr("id AS key", "concat('value-', id) AS value")
    side.write.format("delta").save(str(folder / "side_input"))
    for commit in range(commits):
        first, last = (_BLOCK * (events // _BLOCK * place // commits) for place in (commit, commit + 1))
        numbers = spark.range(first, last, 1, 2).withColumnRenamed("id", "n")
        for name, rows in _split(numbers, seed).items():
            table = str(folder / name)
            if commit == 0:
                rows.limit(0).write.format("delta").save(table)
            rows.write.format("delta").mode("append").save(table)


def _split(numbers: DataFrame, seed: int) -> dict[str, DataFrame]:
    def draw(salt: str, below: int | str) -> str:
        return f"pmod(xxhash64({seed}, n, '{salt}'), {below})"

    def chosen(salt: str, *texts: str) -> str:
        values = ", ".join(map(repr, texts))
        return f"element_at(array({values}), CAST({draw(salt, len(texts))} AS INT) + 1)"

    def text(salt: str, most: int) -> str:
        return f"repeat(chr(97 + {draw(salt, 26)}), CAST(1 + {draw(salt + 'n', most)} AS INT))"

    time = f"timestamp_millis({BEGIN_MS} + n * {STEP_MS} - {draw('time', DISORDER_MS)})"
    block, place = f"(n DIV {_BLOCK})", f"(n % {_BLOCK})"
    person, auction = f"{_FIRST_ID} + {block}", f"{_FIRST_ID} + {block} * 3 + least({place}, 3) - 1"
    # The oldest of the newest hundred is the hot one; while there are fewer, the first of all.
    hot, cold = "greatest({first}, ({newest}) - ({newest}) % {many})", "greatest({first}, ({newest}) - {draw})"

    def drawn(salt: str, newest: str) -> str:
        names = {"first": _FIRST_ID, "newest": newest, "many": _ACTIVE, "draw": draw(salt, _ACTIVE)}
        return f"IF({draw(salt + 'hot', 4)} < 3, {hot.format(**names)}, {cold.format(**names)})"

    price = f"CAST(100 * power(10, {draw('price', 600)} / 100.0D) AS BIGINT)"
    return {
        "person": numbers.where(f"{place} = 0").selectExpr(
            f"{person} AS id",
            f"concat({chosen('first', 'Peter', 'Paul', 'Luke', 'John', 'Saul', 'Vicky', 'Kate', 'Julie')}, ' ', "
            f"{chosen('last', 'Shultz', 'Abrams', 'Spencer', 'White', 'Bartels', 'Walton', 'Smith')}) AS name",
            f"concat({text('mail', 7)}, '@', {text('host', 5)}, '.com') AS emailAddress",
            f"lpad(CAST({draw('card', 10**16)} AS STRING), 16, '0') AS creditCard",
            f"{chosen('city', 'Phoenix', 'Los Angeles', 'San Francisco', 'Boise', 'Portland', 'Bend')} AS city",
            f"{chosen('state', 'AZ', 'CA', 'ID', 'OR', 'WA', 'WY')} AS state",
            f"{time} AS dateTime",
            f"{text('extra', 20)} AS extra",
        ),
        "auction": numbers.where(f"{place} BETWEEN 1 AND 3").selectExpr(
            f"{auction} AS id",
            f"{text('item', 20)} AS itemName",
            f"{text('description', 40)} AS description",
            f"{price} AS initialBid",
            f"{price} + {draw('reserve', 1000)} AS reserve",
            f"{time} AS dateTime",
            f"{time} + make_dt_interval(0, 0, 0, 5 + {draw('expires', 55)}) AS expires",
            f"{drawn('seller', person)} AS seller",
            f"10 + {draw('category', 5)} AS category",
            f"{text('extra', 20)} AS extra",
        ),
        "bid": numbers.where(f"{place} > 3").selectExpr(
            f"{drawn('auction', auction)} AS auction",
            f"{drawn('bidder', person)} AS bidder",
            f"{price} AS price",
            f"{chosen('channel', 'Google', 'Facebook', 'Baidu', 'Apple', 'channel-7', 'channel-42')} AS channel",
            f"concat('https://www.nexmark.com/', {text('a', 4)}, '/', {text('b', 4)}, '/', {text('c', 4)}, "
            f"'/item.htm?query=1&channel_id=', {draw('id', 10000)}) AS url",
            f"{time} AS dateTime",
            f"{text('extra', 30)} AS extra",
        ),
    }
