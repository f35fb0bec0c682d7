"""A dry run as one self-contained HTML page. All text from outside is escaped."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

from floodmark.core.text.tablenames import last_part
from floodmark.views.extents import words

STYLE = """
:root { color-scheme: light dark; --good: #1a7f37; --bad: #cf222e; --open: #9a6700; --line: #8884; --dim: #57606a; }
@media (prefers-color-scheme: dark) { :root { --good: #3fb950; --bad: #f85149; --open: #d29922; --dim: #9da7b1; } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; overflow-wrap: anywhere; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; }
th, td { text-align: left; padding: .15rem .7rem; border-bottom: 1px solid var(--line); vertical-align: top; }
caption { text-align: left; padding: .6rem 0 .2rem; }
.lost { color: var(--bad); } .gained { color: var(--good); } .open { color: var(--open); }
.why { color: var(--dim); }
"""
SIDES = (("lost", "loses", "-"), ("gained", "gains", "+"))


def page(title: str, sinks: Mapping[str, Any], rules: Sequence[Mapping[str, Any]] | None) -> str:
    """The whole document. title: what would be done. rules: `cascade` of the facts, each with its `lines`."""
    body = "\n".join(_body(title, sinks, rules))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _body(title: str, sinks: Mapping[str, Any], rules: Sequence[Mapping[str, Any]] | None) -> Iterator[str]:
    yield f"<h1>{escape(title)}</h1>"
    yield '<p class="why">A dry run: nothing was written. The first rows of each kind are shown.</p>'
    yield from _sinks(sinks)
    if rules is None:
        return
    yield "<h2>Rules that follow, in this order</h2>" if rules else "<p>No other rule reads these sinks.</p>"
    if rules:
        yield from _overview(rules)
    for one in rules:
        yield from _rule(one)


def _overview(rules: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    heads = ("#", "rule", "does", "what", "loses", "gains")
    yield f'<div class="wide"><table>\n<tr>{"".join(f"<th>{head}</th>" for head in heads)}</tr>'
    for one in rules:
        known = one["does"] == "correct" and not one["because"]
        counts = (sum(sink[side] for sink in one["sinks"].values()) if known else "" for _, side, _ in SIDES)
        what = "not known" if one["because"] else _what(one)
        cells = (one["order"], one["rule"], one["does"], what, *counts)
        yield f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in cells)}</tr>"
    yield "</table></div>"


def _what(one: Mapping[str, Any]) -> str:
    return words(one)


def _rule(one: Mapping[str, Any]) -> Iterator[str]:
    yield f"<h2>{one['order']}. {escape(one['rule'])}</h2>"
    reads = (f"{it['kind']} {it['name']} reads {last_part(it['sink'])} of {it['writer']}" for it in one["reads"])
    yield f'<p class="why">{escape(", ".join(reads))}</p>'
    marks = ' class="open"' if one["does"] in ("stop", "wait") or one["because"] else ""
    yield f"<p{marks}>{escape(one['effect'])}</p>"
    yield from (f"<p>{escape(line)}</p>" for line in one["lines"])
    yield from _sinks(one["sinks"])


def _sinks(sinks: Mapping[str, Any]) -> Iterator[str]:
    for address, rows in sinks.items():
        said = f"sink {last_part(address)}: {rows['after']} rows would replace {rows['before']}"
        shown = [(side, sign, row) for side, _, sign in SIDES for row in rows[side]]
        columns = list(dict.fromkeys(name for _, _, row in shown for name in row))
        yield f'<div class="wide"><table>\n<caption title="{escape(address)}">{escape(said)}; {_counts(rows)}</caption>'
        if shown:
            yield f"<tr><th></th>{''.join(f'<th>{escape(name)}</th>' for name in columns)}</tr>"
        for side, sign, row in shown:
            cells = "".join(f"<td>{_cell(row.get(name))}</td>" for name in columns)
            yield f'<tr class="{side}"><td>{sign}</td>{cells}</tr>'
        yield "</table></div>"


def _counts(rows: Mapping[str, Any]) -> str:
    return f"loses {rows['loses']}, gains {rows['gains']}"


def _cell(value: Any) -> str:
    return escape(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
