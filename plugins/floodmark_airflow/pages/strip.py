"""A row of bars, one for each epoch, that shows its outcome by shape, colour and text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup, escape

from floodmark.views.extents import words

WIDTH = 8  # of a bar and the space beside it
# Solid: committed; split: committed after several attempts; hollow: open; low with a cross: lost or discarded;
# a line: the generation was sealed; a diamond: results between two epochs were replaced.
SHAPES = {
    "committed": '<rect x="{0}" y="1" width="6" height="14" rx="1"/>',
    "retried": '<path d="M{0} 1h6v4.5h-6zm0 6.5h6v7.5h-6z"/>',
    "open": '<rect x="{0}.5" y="1.5" width="5" height="13" rx="1"/>',
    "lost": '<rect x="{0}.5" y="8.5" width="5" height="6" rx="1"/><path d="M{1} 2l4 4m0-4-4 4"/>',
    "discarded": '<rect x="{0}.5" y="8.5" width="5" height="6" rx="1"/><path d="M{1} 2l4 4m0-4-4 4"/>',
    "sealed": '<path d="M{2} 1v14"/>',
    "corrected": '<path d="M{0} 8l3-6 3 6-3 6z"/>',
    "backfilled": '<path d="M{0} 8l3-6 3 6-3 6z"/>',
}
BAR = '<g class="{0}"><title>epoch {1:d}: {0}{3}</title>{2}</g>'
ALL = '<svg class="strip" role="img" viewBox="0 0 {0} 16" width="{0}" height="16" aria-label="{1}">{2}</svg>'


def strip(epochs: Sequence[Mapping[str, Any]]) -> Markup:
    """The bars of epochs, given as in `floodmark epochs`, as SVG. It contains only numbers and escaped texts."""
    drawn = [epoch for epoch in epochs if epoch["read"] is not None or epoch["result"] == "sealed"]  # no lifecycle rows
    outcomes = [(epoch["epoch"], escape(_outcome(epoch))) for epoch in drawn]
    about = [escape(_about(epoch.get("backfill"))) for epoch in drawn]
    bars = "".join(_bar(place, *outcome, about[place]) for place, outcome in enumerate(outcomes))
    words = ", ".join(f"epoch {epoch:d} {word}" for epoch, word in outcomes)
    return Markup(ALL.format(len(drawn) * WIDTH, words, bars))  # noqa: S704 - see above


def _outcome(epoch: Mapping[str, Any]) -> str:
    return "retried" if epoch["result"] == "committed" and epoch["attempts"] > 1 else str(epoch["result"])


def _about(backfill: Mapping[str, Any] | None) -> str:
    """What a backfill or a correction has replaced, and why."""
    if backfill is None:
        return ""
    what = f", {extent}" if (extent := words(backfill)) else ""
    return f"{what}{''.join(f', stream {name}: {_moved(one)}' for name, one in backfill['rewrites'].items())}"


def _moved(rewrite: Mapping[str, Any]) -> str:
    """What a correction followed in one stream."""
    return f"{rewrite['left']} rows left and {rewrite['came']} came"


def _bar(place: int, epoch: int, word: Markup, about: Markup) -> str:
    left = place * WIDTH + 1
    drawn = SHAPES.get(word, SHAPES["committed"]).format(left, left + 1, left + 3)
    return BAR.format(str(word), epoch, drawn, str(about))
