"""Check that a row's body has the fields that are read later.

The checks raise AttributeError, KeyError, TypeError or ValueError.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any


def whole(found: Any) -> int:
    """A whole number of the ledger. Raises TypeError for other numbers, and for a text that reads like one."""
    if type(found) is not int:
        raise TypeError(f"expected a whole number, found {found!r}")
    return found


def check_tables(body: Mapping[str, Any]) -> None:
    """Raise AttributeError, KeyError, TypeError or ValueError if a field that is read later is missing or unfit."""
    _ = whole(body["output_rows"]), [whole(rows) for rows in body.get("rejected", {}).values()]
    _ = body["table_ids"]
    check_entry(body)
    check_expected([body])
    check_written(body)


def check_written(body: Mapping[str, Any]) -> None:
    _ = [table + id_ for table, id_ in body.get("table_ids", {}).items()]
    for written in body["tables"].values():
        _ = whole(written["version"]), whole(written["commit"]), whole(written["rows"])


def check_undone(body: Mapping[str, Any]) -> None:
    for written in body["tables"].values():
        _ = whole(written["version"]), whole(written["commit"]), [whole(one) for one in written["undoes"]]


def places(body: Mapping[str, Any]) -> list[str]:
    """The offsets of an entry, as text."""
    return str(body["entry"]).rstrip("\n").split("\n")[2:]


def check_rule(body: Mapping[str, Any]) -> None:
    """The same for an intent."""
    rule = json.loads(body["rule"])
    _ = rule["qos"], dict(rule["streams"]), [(sink["kind"], sink["address"], sink["qos"]) for sink in rule["sinks"]]
    check_entry(body)
    check_counts(body)


def check_entry(body: Mapping[str, Any]) -> None:
    """The same for the offsets and the watermark, in a row that begins, announces or ends an epoch."""
    _ = body["entry"].split("\n"), body["maxima"]
    _ = None if body["watermark"] is None else whole(body["watermark"])


def check_counts(body: Mapping[str, Any]) -> None:
    counts = body["counts"].values()
    _ = [whole(one[part]) for one in counts for part in ("read", "filtered", "dead", "late", "folded")]
    _ = [whole(one.get("dropped", 0)) for one in counts]
    check_expected(counts)


def check_expected(bodies: Iterable[Mapping[str, Any]]) -> None:
    _ = [whole(one["failed"]) + whole(one["taken"]) for body in bodies for one in body.get("expected", {}).values()]


def check_backfill(body: Mapping[str, Any]) -> None:
    """The same for a backfill's intent."""
    rule = json.loads(body["rule"])
    _ = [(sink["kind"], sink["address"]) for sink in rule["sinks"]]
    check_counts(body)
    _ = str(body["column"]), [whole(body[name]) for name in ("begin", "end", "high", "shift", "upto")]
    _ = dict(body["restated"]), str(body["entry"]), whole(body.get("low", body["begin"]))
    if not isinstance(body.get("whole", False), bool):
        raise TypeError(f"expected true or false for `whole`, found {body['whole']!r}")
    for one in body.get("rewrites", {}).values():
        _ = str(one["since"]), str(one["upto"]), [str(commit) for commit in one["commits"]]
        _ = whole(one["left"]["rows"]), whole(one["came"]["rows"]), dict(body["maxima"])
    for one in body.get("state", {}).values():
        _ = str(one["column"]), whole(one["begin"]), whole(one["end"])
    _ = [whole(one) for one in (*body.get("keys", {}).values(), *(at for gap in body.get("gaps", ()) for at in gap))]
    digests = (body["results"], *body.get("taken", {}).values())
    _ = [digest[name] for digest in digests for name in ("rows", "high", "low")]


def check_deferred(body: Mapping[str, Any]) -> None:
    """The same for rewrites that are deferred."""
    _ = body["entry"].split("\n"), [(str(one["since"]), str(one["upto"])) for one in body["rewrites"].values()]


def sinks_back(before: int | None, after: int | None) -> bool:
    return before is not None and (after is None or after < before)
