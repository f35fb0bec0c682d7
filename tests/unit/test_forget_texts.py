"""What `floodmark forget` says of what it finds, and of what it leaves."""

from __future__ import annotations

import pytest

from floodmark.cli.commands.forget import _say_found
from floodmark.spark.rule.forgetting import Found, Looked


def said(found: Found, capsys: pytest.CaptureFixture[str]) -> list[str]:
    _say_found("r", found)
    return capsys.readouterr().out.splitlines()


def test_what_stays_is_named_with_what_removes_it(capsys: pytest.CaptureFixture[str]) -> None:
    own, copies = {"dead": Looked(1, malformed=2)}, {"landing/b": Looked(0, malformed=3)}
    sources = {"a": "/lake/a", "b": "/in/b"}
    lines = said(Found(own, {}, sources, {}, copies, corrects=["a"], names=["sources/b/f"]), capsys)
    for begins, ends in (
        ("  dead: 2 malformed records have a value", "--where \"_reason LIKE '%...%'\""),
        ("  landing b: 3 malformed records have a value", "--where \"_floodmark_malformed LIKE '%...%'\""),
        ("  source a (/lake/a): not looked at. DELETE the rows", "takes them out of the sinks, too"),
        ("  source b (/in/b): not looked at. Remove the rows", "`floodmark backfill r --all`: that takes them out of"),
        ("  sources/b/f: it names a file", "`floodmark drop r --all` removes it"),
        ("audit can no longer recompute what was in dead before", "digests and counts"),
    ):
        assert any(line.startswith(begins) and ends in line for line in lines), (begins, lines)


def test_where_only_a_landing_has_rows_the_audit_loses_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert not any("audit" in line for line in said(Found({}, {}, {}, {}, {"landing/b": Looked(1)}), capsys))
