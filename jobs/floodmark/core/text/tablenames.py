"""Names tables in messages: first the name that a reader knows, and the address last, where it helps to find the table.

A sink's name is its `name` in the rule, else the last part of its address. The engine's own tables have fixed names.
"""

from __future__ import annotations

import re


def last_part(address: str) -> str:
    """The name of the table at an address, unless the rule gives it another: `out` of `/lake/out/`."""
    return address.rstrip("/").rpartition("/")[2]


def table_label(name: str) -> str:
    """A table by the ledger's name for it (`sink/ADDRESS`, `state/NAME`, `late`, `dead`), for people."""
    kind, _, rest = name.partition("/")
    return f"{kind} {last_part(rest)}" if rest else name


def about_sink(address: str, problem: str) -> str:
    """The message for the sink at an address: `sink NAME: PROBLEM. Table: ADDRESS`."""
    return about(f"sink {last_part(address)}", address, problem)


def about_table(address: str, problem: str) -> str:
    """The same for any table; one that keeps state lies in `state/gGENERATION/NAME`."""
    kind = "state" if re.search(r"/state/g\d+/[^/]+$", address) else "table"
    return about(f"{kind} {last_part(address)}", address, problem)


def about_ledger(address: str, problem: str) -> str:
    """The same for a ledger, which lies in the rule's home."""
    return about(f"the ledger of rule {last_part(address.rpartition('/')[0])}", address, problem)


def about_named(name: str, problem: str) -> str:
    """The same for a table by the ledger's name, which may end with `, epoch N`; only that of a sink has an address."""
    table, epoch = re.fullmatch(r"(.*?)(, epoch \d+)?", name, re.DOTALL).groups("")  # type: ignore[union-attr]
    address, what = table.removeprefix("sink/"), f"{table_label(table)}{epoch}"
    return f"{what}: {problem}" if address == table else about(what, address, problem)


def problem_in(message: str, address: str) -> str:
    """The problem in a message of `about_table` for this address."""
    return message.removeprefix(f"table {last_part(address)}: ").removesuffix(f". Table: {address}")


def about(what: str, address: str, problem: str) -> str:
    """`WHAT: PROBLEM. Table: ADDRESS`, without the last sentence if the problem has the address, as in a command."""
    place = address.removeprefix("file://")
    has_it = re.search(rf"{re.escape(place)}(?![\w-]|\.\w)", problem)
    return f"{what}: {problem}" if has_it else f"{what}: {problem}. Table: {place}"
