"""The report as one self-contained HTML page. All text from outside is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from floodmark.core.rules.sinks.delivery import WORDS
from floodmark.proving import report
from floodmark.proving.faultplan import FAULTS, TITLES
from floodmark.proving.judge.judging import Judged, Matrix

STYLE = """
:root { color-scheme: light dark; --good: #1a7f37; --bad: #cf222e; --open: #9a6700; --line: #8884; --dim: #57606a; }
@media (prefers-color-scheme: dark) { :root { --dim: #9da7b1; } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; overflow-wrap: anywhere; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; }
th, td { text-align: left; padding: .15rem .7rem; border-bottom: 1px solid var(--line); vertical-align: top; }
th.fault { text-align: center; min-width: 7rem; } td.cell { text-align: center; border: 2px solid Canvas; }
.cell, .verdict, .sign { color: #fff; font-weight: bold; }
.proven { background: var(--good); } .broken { background: var(--bad); }
.unknown, .unfinished { background: var(--open); } td.skipped { color: var(--dim); font-weight: normal; }
.verdict { padding: .1rem .6rem; border-radius: .3rem; }
.sign { display: inline-block; width: 1.3rem; text-align: center; border-radius: .2rem; font-size: .85em; }
code { font-size: .9em; } details { margin: .3rem 0; } details table { margin: .3rem 0 .8rem 1.2rem; }
.why { color: var(--dim); }
"""


def page(matrix: Matrix) -> str:
    """The whole document."""
    name = escape(matrix.played.rule.rule)
    body = "\n".join(_body(matrix))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>floodmark prove {name}</title>\n"
        f"<style>{STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _body(matrix: Matrix) -> Iterator[str]:
    verdict = matrix.verdict
    yield f'<h1>{_text(matrix.played.rule.rule)} <span class="verdict {verdict}">{verdict.upper()}</span></h1>'
    yield _list(report.summary(matrix), "p")
    yield from _promise(matrix)
    yield from _findings(matrix)
    yield "<h2>The matrix</h2>"
    yield from _grid(matrix)
    yield "<h2>Without a fault</h2>"
    yield from _undisturbed(matrix)
    yield "<h2>What was compared</h2>"
    yield from map(_details, matrix.copies)
    yield from _skipped(matrix)
    yield "<h2>What was not tested</h2>"
    yield _items(report.not_tested(matrix))
    yield from _circumstances(matrix)


def _promise(matrix: Matrix) -> Iterator[str]:
    qos = matrix.played.rule.qos
    held = {
        2: "sinks equal those of the undisturbed run, row by row",
        1: "nothing is missing from the sinks; rows of a retried epoch may be duplicated",
        0: "no row is duplicated; lost rows are counted in the ledger",
    }
    yield f"<p>Checked: what qos {qos} promises, {WORDS[qos]}: {held[qos]}. Floating point agrees within 1e-9.</p>"


def _grid(matrix: Matrix) -> Iterator[str]:
    head = "".join(f'<th class="fault">{_text(TITLES[fault])}</th>' for fault in FAULTS)
    yield f'<div class="wide"><table>\n<tr><th>crash point</th>{head}</tr>'
    for point, cells in report.grid(matrix):
        yield f"<tr><td><code>{_text(point)}</code></td>{''.join(_cell(*cell) for cell in cells)}</tr>"
    yield "</table></div>"
    meanings = (f"{sign} {word}" for word, sign in report.SIGNS.items())
    yield f'<p class="why">{_text(" · ".join(meanings))}. Hover over a cell for details.</p>'


def _cell(verdict: str, why: str) -> str:
    return f'<td class="cell {_text(verdict)}" title="{_text(why)}">{report.SIGNS[verdict]}</td>'


def _undisturbed(matrix: Matrix) -> Iterator[str]:
    yield '<table>\n<tr><th>run</th><th>epochs</th><th class="fault">verdict</th></tr>'
    for one in (one for one in matrix.copies if not one.planned):
        yield f"<tr><td>{_text(report.title(one))}</td><td>{one.epochs}</td>{_cell(one.verdict, '')}</tr>"
    yield "</table>"


def _findings(matrix: Matrix) -> Iterator[str]:
    found = report.findings(matrix)
    if found:
        yield "<h2>What is not proven</h2>"
        yield _items(found)


def _details(one: Judged) -> str:
    """The checks of a copy; collapsed if all are proven."""
    rows = "".join(
        f"<tr><td>{_text(check.what)}</td><td>{_text(check.verdict)}</td><td>{_text(check.found)}</td></tr>"
        for check in one.checks
    )
    verdict = one.verdict
    sign = f'<span class="sign {verdict}" aria-hidden="true">{report.SIGNS[verdict]}</span>'
    return (
        f"<details{'' if verdict == 'proven' else ' open'}><summary>{sign} {_text(report.title(one))}: {verdict}, "
        f"{report.figures(one)}</summary>\n<table>{rows}</table></details>"
    )


def _skipped(matrix: Matrix) -> Iterator[str]:
    if matrix.played.skipped:
        yield "<h2>What was left out, and why</h2>"
        by_reason: dict[tuple[str, str], list[str]] = {}
        for one in matrix.played.skipped:
            by_reason.setdefault((one.fault, one.why), []).append(one.point)
        yield _items(f"{TITLES[fault]}: {', '.join(points)}: {why}" for (fault, why), points in by_reason.items())


def _circumstances(matrix: Matrix) -> Iterator[str]:
    played = matrix.played
    yield "<h2>Circumstances</h2>"
    yield _items(
        [
            *(
                f"stream {one['stream']}: {one['rows']} rows in {one['commits']} commits, of {one['table']} "
                f"({one['upto']}){'; ' + one['note'] if one['note'] else ''}"
                for one in played.streams
            ),
            *(
                f"stream {one['stream']}, in copies that correct their results: {one['rows']} rows, of which "
                f"{one['left']} leave; {one['came']} come"
                for one in played.rewrites
            ),
            ", ".join(f"{name} {version}" for name, version in played.versions.items()),
        ]
    )


def _items(texts: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{_text(text)}</li>' for text in texts)}</ul>"


def _list(texts: Sequence[str], tag: str) -> str:
    return "\n".join(f"<{tag}>{_text(text)}</{tag}>" for text in texts)


def _text(value: object) -> str:
    return escape(str(value))
