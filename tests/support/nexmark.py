"""Answers to Nexmark's questions by DuckDB, over the same tables: only what is final at the watermark `$mark`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

_TEN = 'time_bucket(INTERVAL 10 SECOND, "dateTime")'
_MINUTE = 'time_bucket(INTERVAL 1 MINUTE, "dateTime")'
_STATISTICS = ", ".join(
    f"count({what}) FILTER (WHERE {price})"
    for what in ("*", "DISTINCT bidder", "DISTINCT auction")
    for price in ("true", "price < 10000", "price >= 10000 AND price < 1000000", "price >= 1000000")
)
# The bids in the first minute of each auction, with the end of the window in which the auction began.
_FIRST_MINUTE = """
  SELECT time_bucket(INTERVAL 1 MINUTE, a."dateTime") + INTERVAL 1 MINUTE AS ending, a.*, b.auction, b.bidder, b.price,
         b."dateTime" AS bid_time, b.extra AS bid_extra
  FROM auction a JOIN bid b ON a.id = b.auction AND b."dateTime" BETWEEN a."dateTime" AND a.expires
       AND b."dateTime" <= a."dateTime" + INTERVAL 1 MINUTE
  WHERE epoch_us(ending) + 60000000 <= $mark"""

ANSWERS = {
    "q0": 'SELECT auction, bidder, price, "dateTime", extra FROM bid',
    "q1": 'SELECT auction, bidder, CAST(0.908 * price AS DECIMAL(23, 3)), "dateTime", extra FROM bid',
    "q2": "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    "q3": """SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id
             WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')
             AND p."dateTime" BETWEEN a."dateTime" - INTERVAL 10 MINUTE AND a."dateTime" + INTERVAL 3 SECOND
             AND epoch_us(a."dateTime") + 3000000 < $mark""",
    "q4": f"""SELECT ending, category, avg(top) FROM
              (SELECT ending, id, category, max(price) AS top FROM ({_FIRST_MINUTE}) GROUP BY ALL) GROUP BY ALL""",
    "q5": """WITH spread AS (
               SELECT auction, time_bucket(INTERVAL 2 SECOND, "dateTime") + to_seconds(2 * step) AS ending
               FROM bid, range(1, 6) AS steps(step)),
             counted AS (SELECT ending, auction, count(*) AS num FROM spread GROUP BY ALL)
             SELECT * FROM counted WHERE epoch_us(ending) <= $mark
             QUALIFY num = max(num) OVER (PARTITION BY ending)""",
    "q7": f"""SELECT auction, price, bidder, "dateTime", extra FROM bid WHERE epoch_us({_TEN}) + 10000000 <= $mark
              QUALIFY price = max(price) OVER (PARTITION BY {_TEN})""",
    "q8": f"""SELECT DISTINCT p.id, p.name, p.start FROM (SELECT *, {_TEN} AS start FROM person) p
              JOIN (SELECT seller, {_TEN} AS start FROM auction) a ON p.id = a.seller AND p.start = a.start
              WHERE epoch_us(p.start) + 10000000 <= $mark""",
    "q9": f"""SELECT id, "itemName", seller, category, auction, bidder, price, bid_time, bid_extra
              FROM ({_FIRST_MINUTE})
              QUALIFY row_number() OVER (PARTITION BY id ORDER BY price DESC, bid_time, bidder, bid_extra) = 1""",
    "q11": """WITH marked AS (
                SELECT bidder, "dateTime" AS t, coalesce("dateTime" > lag("dateTime") OVER by_time
                       + INTERVAL 10 SECOND, true)::INT AS opens
                FROM bid WINDOW by_time AS (PARTITION BY bidder ORDER BY "dateTime")),
              numbered AS (SELECT *, sum(opens) OVER (PARTITION BY bidder ORDER BY t) AS session FROM marked)
              SELECT bidder, count(*), min(t), max(t) + INTERVAL 10 SECOND AS ending FROM numbered
              GROUP BY bidder, session HAVING epoch_us(ending) < $mark""",
    "q12": f"""SELECT bidder, count(*), {_TEN} AS start, start + INTERVAL 10 SECOND FROM bid
               WHERE epoch_us(start) + 10000000 <= $mark GROUP BY bidder, start""",
    "q13": """SELECT auction, bidder, price, "dateTime", value FROM bid JOIN side_input ON auction % 10000 = key""",
    "q14": """SELECT auction, bidder, 0.908 * price AS euros, CASE WHEN hour("dateTime") BETWEEN 8 AND 18 THEN 'dayTime'
                WHEN hour("dateTime") <= 6 OR hour("dateTime") >= 20 THEN 'nightTime' ELSE 'otherTime' END,
                "dateTime", extra, length(extra) - length(replace(extra, 'c', ''))
              FROM bid WHERE euros > 1000000 AND euros < 50000000""",
    "q15": f"""SELECT {_MINUTE} AS start, {_STATISTICS} FROM bid WHERE epoch_us(start) + 60000000 <= $mark
               GROUP BY start""",
    "q16": f"""SELECT channel, {_MINUTE} AS start, strftime(max("dateTime"), '%H:%M'), {_STATISTICS} FROM bid
               WHERE epoch_us(start) + 60000000 <= $mark GROUP BY channel, start""",
    "q17": """SELECT auction, strftime("dateTime", '%Y-%m-%d') AS day, count(*),
                count(*) FILTER (WHERE price < 10000), count(*) FILTER (WHERE price >= 10000 AND price < 1000000),
                count(*) FILTER (WHERE price >= 1000000), min(price), max(price), avg(price), sum(price)::BIGINT
              FROM bid GROUP BY auction, day""",
    "q18": """SELECT auction, bidder, price, channel, url, "dateTime", extra FROM bid
              QUALIFY row_number() OVER (PARTITION BY bidder, auction
                                         ORDER BY "dateTime" DESC, price, channel, url, extra) = 1""",
    "q19": """SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, bidder, channel, url, "dateTime",
                                           extra) AS place
              FROM bid QUALIFY place <= 10""",
    "q20": """SELECT auction, bidder, price, channel, b."dateTime", "itemName", seller, a."dateTime"
              FROM bid b JOIN auction a ON b.auction = a.id AND a.category = 10 AND a."dateTime"
                BETWEEN b."dateTime" - INTERVAL 5 MINUTE AND b."dateTime" + INTERVAL 3 SECOND
              WHERE epoch_us(b."dateTime") + 3000000 < $mark""",
    "q22": """SELECT auction, bidder, price, channel, split_part(url, '/', 4), split_part(url, '/', 5),
                split_part(url, '/', 6) FROM bid""",
}


def answer(name: str, tables: Path, mark: int) -> list[tuple[Any, ...]]:
    """Rows in the order of the rule's columns. `mark`: the watermark in microseconds."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for table in ("person", "auction", "bid", "side_input"):
            rows = QueryBuilder().register("t", DeltaTable(str(tables / table))).execute("SELECT * FROM t").read_all()
            connection.register(table, pa.table(rows))
        parameters = {"mark": mark} if "$mark" in ANSWERS[name] else None
        return connection.execute(ANSWERS[name], parameters).fetchall()
