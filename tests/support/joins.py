"""Rules over two streams: events and others, of the same columns, joined in every way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from support.flow import SCHEMA, Flow


@dataclass(frozen=True)
class Join:
    """A rule's SQL; `end`: its results are final when the watermark has reached it or, where `peers`, has passed it."""

    sql: str
    end: str
    peers: bool = True

    def with_end(self) -> str:
        """The microseconds of `end`, and the rest of each result as JSON."""
        timed = self.sql.replace("SELECT", f"SELECT unix_micros({self.end}) AS _end,", 1)
        return f"SELECT _end, to_json(struct(* EXCEPT (_end))) AS result FROM ({timed})"


JOINS = {
    "inner": Join(
        """SELECT e.at AS at, o.at AS other, e.k AS k, e.n AS n, o.v AS v FROM events e JOIN others o
           ON e.k = o.k AND o.at BETWEEN e.at - INTERVAL '40' SECONDS AND e.at + INTERVAL '20' SECONDS
           WHERE e.n IS NULL OR e.n <> 4""",
        "e.at + INTERVAL '20' SECONDS",
    ),
    "left": Join(
        """SELECT e.at AS at, o.at AS other, e.k AS k, e.n AS n, o.v AS v FROM events AS e LEFT JOIN others AS o
           ON e.k <=> o.k AND o.at >= e.at AND o.at < e.at + INTERVAL '1' MINUTE""",
        "e.at + INTERVAL '1' MINUTE",
    ),
    "full": Join(
        """SELECT e.at AS at, o.at AS other, e.k AS k, o.n AS n FROM events AS e
           FULL OUTER JOIN (SELECT at, lower(k) AS k, n FROM others WHERE n <> 2) AS o
           ON e.k = o.k AND o.at >= e.at - INTERVAL '20' SECONDS AND o.at <= e.at""",
        "coalesce(e.at, o.at + INTERVAL '20' SECONDS)",
    ),
    "semi": Join(
        """SELECT at, k, n FROM events LEFT SEMI JOIN (SELECT at AS t, k AS l FROM others) AS o
           ON k = l AND t BETWEEN at - INTERVAL '20' SECONDS AND at + INTERVAL '20' SECONDS""",
        "at + INTERVAL '20' SECONDS",
    ),
    "anti": Join(
        """SELECT at, k, n FROM events LEFT ANTI JOIN (SELECT at AS t, k AS l FROM others) AS o
           ON k = l AND t BETWEEN at - INTERVAL '20' SECONDS AND at + INTERVAL '20' SECONDS""",
        "at + INTERVAL '20' SECONDS",
    ),
    "windows": Join(
        """SELECT w.start AS start, k, c, top FROM
           (SELECT window(at, '1 minute') AS w, k, count(*) AS c FROM events GROUP BY w, k) AS a
           FULL JOIN (SELECT window(at, '1 minute') AS w, k, max(n) AS top FROM others GROUP BY 1, 2) AS b
           USING (w, k)""",
        "w.end",
        peers=False,
    ),
    "rows of windows": Join(
        """SELECT w.end AS stop, k, n, v, place, before FROM (SELECT *,
             rank() OVER (PARTITION BY w, k ORDER BY n DESC) AS place,
             lag(v) OVER (PARTITION BY k, w ORDER BY at, n, v) AS before
           FROM (SELECT window(at, '1 minute', '20 seconds') AS w, k, n, v, at FROM
                 (SELECT at, k, n, v FROM events UNION ALL SELECT at, upper(k), n, NULL FROM others))) AS r
           WHERE place < 3""",
        "w.end",
        peers=False,
    ),
    "distinct, grouped again": Join(
        """SELECT e, count(k) AS keys, max(c) AS most FROM
           (SELECT w.end AS e, k, count(*) AS c FROM (SELECT DISTINCT window(at, '1 minute') AS w, k, n FROM events) x
            LEFT JOIN (SELECT DISTINCT window(at, '1 minute').end AS o FROM others) y ON x.w.end = y.o
            WHERE o IS NULL OR n > 0 GROUP BY w.end, k) AS z
           GROUP BY e""",
        "e",
        peers=False,
    ),
    "windows over a join": Join(
        """SELECT window.end AS stop, e.k AS k, count(*) AS c, sum(o.n) AS total FROM events e, others o
           WHERE e.at <= o.at AND o.at <= e.at + INTERVAL '30' SECONDS AND e.k = o.k
           GROUP BY window(e.at, '1 minute', '30 seconds'), e.k""",
        "window.end + INTERVAL '30' SECONDS",
        peers=False,
    ),
    "endless": Join(
        """SELECT e.at AS at, o.at AS other, e.k AS k, e.n AS n, o.v AS v FROM events e, others o
           WHERE e.k = o.k AND e.n = o.n AND e.v IS NOT NULL""",
        "greatest(e.at, o.at)",
    ),
    "OVER above a join": Join(
        """SELECT t, k, n, count(*) OVER (PARTITION BY k ORDER BY t RANGE BETWEEN INTERVAL '60' SECONDS PRECEDING AND
             INTERVAL '10' SECONDS FOLLOWING) AS c
           FROM (SELECT e.at AS t, e.k, o.n FROM others o JOIN events e ON o.at BETWEEN e.at - INTERVAL '20' SECONDS
                 AND e.at)""",
        "t + INTERVAL '10' SECONDS",
    ),
}


def together(names: Iterable[str]) -> str:
    """One rule's SQL for several of JOINS: the name of each beside its results, as JSON."""
    return " UNION ALL ".join(
        f"SELECT '{name}' AS name, to_json(struct(*)) AS result FROM ({JOINS[name].sql})" for name in names
    )


@dataclass
class TwoStreams(Flow):
    """`settings` and `stream` as in Flow, but for both streams; `more`: what the stream `others` has beside these."""

    more: dict[str, Any] = field(default_factory=dict)

    @property
    def other(self) -> str:
        return f"{self.source}_other"

    def text(self) -> dict[str, Any]:
        text = super().text()
        text["streams"]["others"] = {**text["streams"]["events"], "delta": self.other, **self.more}
        return text

    def arrive_other(self, events: Iterable[Mapping[str, Any]]) -> None:
        """One commit, one file of the stream `others`."""
        Path(self.other).parent.mkdir(parents=True, exist_ok=True)
        write_deltalake(self.other, pa.Table.from_pylist(list(events), schema=SCHEMA), mode="append")
