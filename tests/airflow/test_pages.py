"""The pages in Airflow's UI: who may see them, what they tell, and that nothing of a rule is more than text."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from support.byhand import begun, commit, folded, intent, offset, set_apart
from support.flow import OVER, Flow, event
from support.lives import lived
from support.waiting import wait

from floodmark.core.protocol.digests import Digest
from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.records.backfills import Backfill, Backfilled
from floodmark.core.protocol.records.rows import Commit, Counts, Failed
from floodmark.core.rules.rule import Rule
from floodmark.errors import FloodmarkError
from floodmark.ledger.ledger import Ledger
from floodmark_airflow.naming import broken_dag_id

CHECKOUT = Path(__file__).parents[2]
START = 978_307_200_000_000  # 2001-01-01T00:00:00Z
SCRIPT = "<script>alert(1)</script>"
HOSTILE = (
    SCRIPT,
    "%2e%2e",
    "%2e%2e%2f%2e%2e",
    "rule.%3Cscript%3E",
    "rule.größe",
    "%00",
    "rule.\u202ex",
    "~",
    "rule." + "x" * 5000,
    "a/b",
    "'; DROP TABLE dag; --",
    "{{7*7}}",
)


@pytest.fixture(scope="module")
def web(metadata: None) -> Any:
    """What Airflow mounts of the plugin, and the application that it is mounted in."""
    from airflow import plugins_manager
    from airflow.api_fastapi.app import create_app

    airflow = create_app(apps="core")
    (entry,) = (one for one in plugins_manager.get_fastapi_plugins()[0] if one["name"] == "Floodmark")
    return entry["app"], airflow


@pytest.fixture
def ask(web: Any, rules: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """GET below /floodmark/ as somebody (None: nobody); the pages know this test's folders alone.

    Who is told to come again comes again, as a browser does: how soon files are read is the machine's affair.
    """
    from starlette.testclient import TestClient

    mounted, airflow = web
    monkeypatch.setattr(mounted, "_app", None)

    def ask(
        path: str = "", role: str | None = "VIEWER", method: str = "GET", cookie: str = "", again: bool = True
    ) -> Any:
        client = TestClient(airflow, raise_server_exceptions=False)
        headers = {"Authorization": f"Bearer {token(role)}"} if role else {"Cookie": cookie}
        deadline = time.monotonic() + 60
        while True:
            found = client.request(method, f"/floodmark/{path}", headers=headers)
            if not (again and "retry-after" in found.headers) or time.monotonic() > deadline:
                return found

    return ask


def token(role: str) -> str:
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    return get_auth_manager().generate_jwt(SimpleAuthManagerUser(username=role.lower(), role=role, teams=None))


@pytest.fixture
def known(metadata: None) -> Iterator[Callable[..., None]]:
    """Lets Airflow know DAGs of these rules; they are gone after the test."""
    from airflow.models.dag import DagModel
    from airflow.models.dagbundle import DagBundleModel
    from airflow.utils.session import create_session

    made: list[str] = []

    def know(*rules: str) -> None:
        with create_session() as session:
            session.merge(DagBundleModel(name="tests"))
            session.flush()
            for rule in rules:
                made.append(f"rule.{rule}")
                session.merge(DagModel(dag_id=made[-1], bundle_name="tests", is_paused=False))

    yield know
    with create_session() as session:
        for dag_id in made:
            session.delete(session.get(DagModel, dag_id))


def settled(ask: Callable[..., Any], path: str = "") -> str:
    """The page when nothing of it is being read any more, as a person comes to see it."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = ask(path)
        assert found.status_code == 200, found.text
        if 'http-equiv="refresh"' not in found.text:
            return str(found.text)
    raise AssertionError("the page is never whole")


def ran(root: Path, name: str = "counted", **more: Any) -> Flow:
    """A rule with one epoch that was committed."""
    flow = Flow(root, name, **more)
    folded(flow, begun(flow), 1, START + 150_000_000, START + 120_000_000)
    return flow


def text_of(page: str) -> str:
    """What a person reads."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page)).split())


# --- who may see what


def addresses(web: Any) -> list[str]:
    """One address for each route that the application has."""
    return [re.sub(r"\{[^}]+\}", "x", route.path).lstrip("/") for route in web[0].app().routes]


def test_every_route_refuses_who_is_not_signed_in(web: Any, ask: Callable[..., Any]) -> None:
    found = addresses(web)
    assert len(found) == 7
    for path in [*found, "static/floodmark.css", "static/charts.js", "openapi.json", "docs", "no/such/page"]:
        answer = ask(path, None)
        assert answer.status_code == 401, path
        assert "rule" not in answer.text.lower()


def test_a_bad_token_is_refused(web: Any, ask: Callable[..., Any]) -> None:
    for path in addresses(web):
        answer = ask(path, None, cookie="_token=no.such.token")
        assert answer.status_code == 403, path


def test_nothing_but_reading_is_possible(web: Any, ask: Callable[..., Any]) -> None:
    for path in addresses(web):
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            assert ask(path, "ADMIN", method=method).status_code == 405, (method, path)


def test_who_may_not_see_a_dag_sees_nothing_of_its_rule(
    ask: Callable[..., Any], place: Path, known: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

    ran(place, "shown")
    ran(place, "unseen_rule")
    known("shown", "unseen_rule")
    allowed = lambda self, *, details=None, **_: details is not None and details.id == "rule.shown"  # noqa: E731
    monkeypatch.setattr(SimpleAuthManager, "is_authorized_dag", allowed)
    page = settled(ask)
    assert "shown" in page and "unseen_rule" not in page
    assert ask("dags/rule.shown").status_code == 200
    for path in ("", "/history.json", "/rows", "/audit"):
        answer = ask(f"dags/rule.unseen_rule{path}")
        assert answer.status_code == 403
        assert "unseen_rule" not in answer.text


def test_lists_tell_what_runs_have_done_only_to_who_may_see_them(
    ask: Callable[..., Any], place: Path, known: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
    from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

    def allowed(self: Any, *, access_entity: Any = None, details: Any = None, **_: Any) -> bool:
        return access_entity is None or (access_entity == DagAccessEntity.RUN and details.id != "rule.secret")

    stale = {"freshness": {"max_lag": "30 minutes"}, "group": "small"}
    ran(place, "secret", settings=stale)
    ran(place, "told", settings={"group": "small"})
    known("secret", "told")
    assert "1 stale" in text_of(settled(ask))
    monkeypatch.setattr(SimpleAuthManager, "is_authorized_dag", allowed)
    for path in ("", "dags/group.small"):
        page = settled(ask, path)
        rows = sorted(text_of(row) for row in re.findall(r"<tr>(.*?)</tr>", page, re.DOTALL))
        _, secret, told = rows
        assert secret == "secret not shown exactly once exactly once - - - - - - group small", path
        assert "2001-01-01 00:02:00Z" in told and "up to date" in told
        assert "stale" not in text_of(page)
    assert ask("dags/rule.secret").status_code == 403


def test_rows_and_code_have_permissions_of_their_own(
    ask: Callable[..., Any], place: Path, known: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
    from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

    ran(place)
    known("counted")
    runs_only = lambda self, *, access_entity=None, **_: access_entity in (None, DagAccessEntity.RUN)  # noqa: E731
    monkeypatch.setattr(SimpleAuthManager, "is_authorized_dag", runs_only)
    page = settled(ask, "dags/rule.counted")
    assert "GROUP BY" not in page
    assert "may not see this DAG" in page
    assert ask("dags/rule.counted/rows").status_code == 403


def test_a_rule_s_page_counts_what_failed_an_expectation(
    ask: Callable[..., Any], place: Path, known: Callable[..., None]
) -> None:
    flow = Flow(place, stream={"expect": {"positive": {"check": "v > 0 AND k <> '<b>'", "on_fail": "drop"}}})
    flow.settings = {"expect": {"few": {"check": "c < 9", "on_fail": "warn"}}}
    ledger = begun(flow)
    for version in (1, 2):
        counts = Counts(read=5, folded=2, dropped=3, expected={"positive": Failed(failed=4, taken=3)})
        found = intent(flow, version, None, START, counts)
        ledger.intend(found)
        ledger.commit(commit(found, output=1).model_copy(update={"expected": {"few": Failed(failed=1)}}))
    flow.settings = {}
    flow.write_rule()
    known("counted")
    page = settled(ask, "dags/rule.counted")
    assert "<b>" not in page
    said = text_of(page)
    assert "stream events positive v > 0 AND k <> '<b>' drop 8 6" in said
    assert "results few no longer in the rule - 2 0" in said


# --- hostile names, and text that is no more than text


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_that_is_no_rule_is_not_found(ask: Callable[..., Any], place: Path, name: str) -> None:
    ran(place)
    for path in (
        f"dags/{name}",
        f"dags/{name}/rows",
        f"dags/{name}/history.json",
        f"dags/{name}/audit",
        f"static/{name}",
    ):
        answer = ask(path)
        assert answer.status_code == 404, path
        assert SCRIPT not in answer.text


ANY = st.text(max_size=40).map(lambda text: quote(text.encode("utf-8", "surrogatepass"), safe="")) | st.binary(
    max_size=20
).map(lambda raw: "".join(f"%{byte:02x}" for byte in raw))
NAMES = ANY | st.sampled_from(
    ["rule.counted", "rule.bad", "rule.", "counted", "charts.js", "vendor", quote(SCRIPT, safe="")]
)
PARTS = st.sampled_from(["", "/", "/rows", "/audit", "/history.json", "//", "/rows/more"])
QUERIES = st.lists(
    st.tuples(st.sampled_from(["upto", "generation", "dag_id", "find"]), ANY | st.integers().map(str)), max_size=3
)
FUZZED = st.tuples(st.sampled_from(["dags/", "static/", "", "dags/rule."]), NAMES, PARTS, QUERIES)


@given(FUZZED)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_address_is_ever_a_fault_of_ours(ask: Callable[..., Any], place: Path, drawn: Any) -> None:
    if not (place / "home" / "counted").exists():
        ran(place)
        (place / "rules" / "bad.yaml").write_text(f"rule: '{SCRIPT}'\n")
    folder, name, part, query = drawn
    assume("%0a" not in name.lower())  # Starlette mounts nothing below an address of two lines
    path = f"{folder}{name}{part}?" + "&".join(f"{key}={value}" for key, value in query)
    found = ask(path)
    assert found.status_code in (200, 404, 422)
    assert "<script>alert" not in found.text
    assert "default-src 'none'" in found.headers["content-security-policy"]
    assert ask(path, None).status_code == 401


def test_numbers_that_are_none_are_refused(ask: Callable[..., Any], place: Path) -> None:
    ran(place)
    for query in ("upto=x", "upto=-1", "generation=1e9", f"upto={'9' * 400}", "generation=%00"):
        answer = ask(f"dags/rule.counted?{query}")
        assert answer.status_code == 422, query
        assert answer.headers["content-type"].startswith("text/html")
    assert ask("dags/rule.counted?generation=7").status_code == 404
    assert ask("dags/rule.counted?upto=999999").status_code == 200


def test_a_rule_that_cannot_be_judged_leaves_the_list_to_the_others(
    ask: Callable[..., Any], place: Path, known: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    from floodmark_airflow.pages import routes

    def fails_for_odd(rule: Rule, *_: object) -> None:
        if rule.rule == "odd":
            raise ValueError("no reason that anybody foresaw at s3://somebody:word@store/x")

    monkeypatch.setattr(routes.freshness, "fresh", fails_for_odd)
    ran(place, "odd")
    ran(place, "sound")
    known("odd", "sound")
    page = text_of(settled(ask))
    assert "cannot be judged ValueError: no reason that anybody foresaw at s3://***@store/x" in page
    assert "up to date" in page
    assert "cannot be judged" in text_of(settled(ask, "dags/rule.odd"))


def test_every_answer_has_the_headers(ask: Callable[..., Any], place: Path) -> None:
    ran(place)
    for answer in (ask(), ask("", None), ask("dags/rule.counted"), ask("dags/none"), ask("static/floodmark.css"),
                   ask("", method="POST"), ask("dags/rule.counted?upto=x")):  # fmt: skip
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"


def test_a_fault_of_ours_is_told_without_its_text_and_with_the_headers(
    ask: Callable[..., Any], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from floodmark_airflow.pages import routes

    def fail(*_: object, **__: object) -> str:
        raise ZeroDivisionError("a secret")

    monkeypatch.setattr(routes, "page", fail)
    answer = ask()
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_no_page_holds_a_script_or_a_style_of_its_own(
    ask: Callable[..., Any], place: Path, known: Callable[..., None]
) -> None:
    ran(place)
    known("counted")
    for path in ("", "dags/rule.counted", "dags/rule.counted/rows", "dags/rule.counted/audit"):
        page = settled(ask, path)
        assert re.findall(r"<script(?![^>]*\ssrc=)|<style|\sstyle=|\son\w+=|javascript:|https?://", page) == []
        for name in re.findall(r'(?:src|href)="((?:\.\./)*static/[^"]+)"', page):
            assert ask("static/" + name.partition("static/")[2]).status_code == 200


def test_texts_of_rules_and_values_of_rows_are_escaped(
    ask: Callable[..., Any], place: Path, known: Callable[..., None]
) -> None:
    sql = f"SELECT window.start AS s, count(*) AS n, '{SCRIPT}' AS t FROM events GROUP BY window(at, '1 minute')"
    flow = ran(place, sql=sql, settings={"description": SCRIPT, "airflow": {"owner": SCRIPT}})
    ledger = begun(Flow(place, "held"))
    ledger._run = SCRIPT
    folded(Flow(place, "held"), ledger, 1, START, None)
    set_apart(flow.place.dead, 1)
    rows = [{"at": None, "k": SCRIPT, "_epoch": 1, "_stream": "events", "_reason": SCRIPT, "_source": None}]
    write_deltalake(flow.place.dead, pa.Table.from_pylist(rows), mode="append", schema_mode="merge")
    (place / "rules" / "bad.yaml").write_text(f"rule: '{SCRIPT}'\n")
    known("counted", "held", "bad")
    pages = [
        settled(ask, path)
        for path in ("", "dags/rule.counted", "dags/rule.counted/rows", "dags/rule.held", "dags/rule.bad")
    ]
    for page in pages:
        assert "alert(1)" in page
        assert "<script>alert" not in page


# --- what they tell


def test_the_list_tells_what_the_ledgers_say(ask: Callable[..., Any], place: Path, known: Callable[..., None]) -> None:
    ran(place, "one")
    Flow(place, "fresh").write_rule()
    opened = Flow(place, "opened")
    ledger = begun(opened)
    ledger.intend(intent(opened, 1, None, START, Counts(read=1, folded=1)))
    known("one", "fresh", "opened", "bad")
    (place / "rules" / "bad.yaml").write_text("rule: bad\nqos: 7\n")
    page = text_of(settled(ask))
    assert "1 up to date" in page
    assert "1 not run yet" in page
    assert "epoch 1 is open (attempt 1); the next run finishes it" in page
    assert "exactly once" in page
    assert "2001-01-01 00:02:00Z" in page
    assert "bad.yaml" in page and "qos: expected 0" in page


def test_a_rule_in_depth(ask: Callable[..., Any], place: Path) -> None:
    flow = ran(place)
    ledger = flow.ledger()
    assert ledger.head is not None
    page = text_of(settled(ask, "dags/rule.counted"))
    assert "Epoch 1 generation 1" in page
    assert "Watermark 2001-01-01 00:02:00Z" in page
    assert "read 3 filtered 0 dropped 0 folded 2 late 1 dead 0" in page
    assert "no window is open" in page
    assert "The next run has nothing to do: nothing new since epoch 1" in page
    assert "before version 1" in page
    assert "windows of 1 minute" in page
    assert "GROUP BY window(at, '1 minute')" in page


@pytest.mark.parametrize("on_exceed", ["warn", "fail"])
def test_a_rule_that_is_less_fresh_than_it_is_to_be_is_red_and_says_why(
    ask: Callable[..., Any], place: Path, known: Callable[..., None], on_exceed: str
) -> None:
    ran(place, settings={"freshness": {"max_lag": "30 minutes", "on_exceed": on_exceed}})
    known("counted")
    listed, deep = settled(ask), settled(ask, "dags/rule.counted")
    assert "1 stale" in text_of(listed) and 'class="condition bad"' in listed and 'class="condition bad"' in deep
    assert "the newest processed row of stream events is" in text_of(listed)
    assert "Freshness the newest processed row of stream events is" in text_of(deep)
    assert "old, more than max_lag 30 minutes" in text_of(deep)


def test_a_rule_of_another_kind_in_depth(ask: Callable[..., Any], place: Path) -> None:
    ran(place, "joined", sql=OVER)
    ran(place, "classy", process="totals:Totals", sinks=1)
    assert "no row waits" in text_of(settled(ask, "dags/rule.joined"))
    page = text_of(settled(ask, "dags/rule.classy"))
    assert "class totals:Totals, called for each k and event time" in page
    assert "def process(self, key, rows, ctx)" in page


@pytest.mark.parametrize(
    ("watermark", "shown"),
    [
        (-62_135_596_800_000_000 - 86_400_000_000, "0000-12-31 00:00:00Z"),
        (253_402_300_800_000_000, "+10000-01-01 00:00:00Z"),
    ],
)
def test_a_watermark_of_a_year_that_python_lacks_is_told_as_others_are(
    ask: Callable[..., Any], place: Path, known: Callable[..., None], watermark: int, shown: str
) -> None:
    flow = Flow(place, settings={"freshness": {"max_lag": "30 minutes"}})
    folded(flow, begun(flow), 1, watermark + 1000, watermark)
    known("counted")
    for path in ("", "dags/rule.counted"):
        assert shown in text_of(settled(ask, path)), path
    assert ask("dags/rule.counted/history.json").status_code == 200


def test_times_are_told_to_the_second() -> None:
    from floodmark_airflow.pages.staticfiles import micros, seconds, stamp

    assert [micros(1_500_000), micros(1_500_000, False), micros(None)] == [
        "1970-01-01 00:00:01Z",
        "1970-01-01 00:00:01",
        "-",
    ]
    assert (seconds(1.5), seconds(-1e12)) == ("1970-01-01 00:00:01Z", "-29719-04-05 22:13:20Z")
    assert stamp("2001-01-01T00:00:00.123456+00:00") == "2001-01-01 00:00:00Z"
    assert stamp("Time of Tests, longer than others") == "Time of Tests, longer than others"


def test_dead_and_rejected_rows_are_two_columns_in_every_table(ask: Callable[..., Any], place: Path) -> None:
    flow = Flow(place)
    ledger = begun(flow)
    found = intent(flow, 1, None, START, Counts(read=5, folded=4, dead=1))
    ledger.intend(found)
    ledger.commit(commit(found, output=1).model_copy(update={"rejected": {"events": 3}}))
    rows = [text_of(row) for row in re.findall(r"<tr.*?</tr>", settled(ask, "dags/rule.counted"), re.DOTALL)]
    assert sum("Late Dead Rejected" in row for row in rows) == 2
    of_the_chart, of_the_epoch = (next(row for row in rows if text in row) for text in (" 5 1 0 1 3 ", " 5 4 0 1 3 "))
    assert of_the_chart != of_the_epoch


def test_times_of_events_without_a_zone_are_told_without_one(ask: Callable[..., Any], place: Path) -> None:
    flow = Flow(place)
    flow.arrive([event(1)])
    flow.write_rule()
    entry, columns = Entry(0, (offset(flow, 0),)).text(), {"events": [("at", "timestamp_ntz"), ("k", "string")]}
    ledger = Ledger.open(flow.place.ledger, "by hand")
    text = flow.rule().to_json()
    ledger.begin(1, "token", Commit(entry=entry, watermark=None, maxima={"events": None}, columns=columns, rule=text))
    folded(flow, ledger, 1, START + 150_000_000, START + 120_000_000)
    page = settled(ask, "dags/rule.counted")
    assert text_of(page).count("2001-01-01 00:02:00") == 3, "above, of the chart's points, and of the epoch"
    assert "2001-01-01 00:02:00Z" not in page
    assert 'data-zone=""' in page


def test_a_changed_rule_is_refused_and_its_epochs_keep_their_streams(
    ask: Callable[..., Any], place: Path, known: Callable[..., None]
) -> None:
    flow = ran(place)
    file = flow.write_rule()
    file.write_text(file.read_text().replace("events:", "another:").replace("FROM events", "FROM another"))
    known("counted")
    assert "1 changed" in text_of(settled(ask))
    page = settled(ask, "dags/rule.counted")
    assert "changed streams" in text_of(page) and "floodmark reset counted" in text_of(page)
    summaries = [text_of(one) for one in re.findall(r"<summary>(.*?)</summary>", page, re.DOTALL)]
    assert [one.split()[0] for one in summaries if not one.startswith("Addresses")][1:] == ["events", "events"]


def test_tables_have_their_names_with_the_address_as_a_tooltip_and_in_a_list(
    ask: Callable[..., Any], place: Path
) -> None:
    flow = Flow(place)
    lived(flow)
    page, sink, source = settled(ask, "dags/rule.counted"), flow.sink(0), flow.source
    assert f'<th scope="row" title="delta {sink}">counted_out0</th>' in page
    assert f'<dd title="{source}">delta</dd>' in page
    assert f"<dt>counted_out0</dt><dd>delta {sink}</dd>" in page and f"<dt>events</dt><dd>{source}</dd>" in page
    assert page.count(sink) == page.count(source) == 2
    audit = settled(ask, "dags/rule.counted/audit")
    assert f'<th scope="row" title="sink/{sink}">sink counted_out0</th>' in audit
    assert f'<span title="sink/{sink}">sink counted_out0</span>, generation 1' in audit
    assert sink not in text_of(audit)


def test_the_way_to_a_group_is_that_of_the_environment(
    ask: Callable[..., Any], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Flow(place, settings={"group": "small"}).write_rule()
    (place / "env").mkdir()
    (place / "env" / "dev.env").write_text("")
    monkeypatch.setenv("FLOODMARK_ENV", "dev")
    assert 'href="../dags/dev.group.small"' in settled(ask, "dags/dev.rule.counted")


def test_the_charts_get_the_ledgers_numbers(ask: Callable[..., Any], place: Path) -> None:
    flow = ran(place)
    ended = [row for row in flow.ledger().rows if row.kind == "commit" and row.epoch]
    answer = ask("dags/rule.counted/history.json")
    assert answer.status_code == 200
    series = answer.json()["series"]
    bodies = [json.loads(row.body) for row in ended]
    assert series["read"] == [sum(one["read"] for one in body["counts"].values()) for body in bodies]
    assert series["output"] == [body["output_rows"] for body in bodies]
    assert series["watermark"] == [body["watermark"] / 1e6 for body in bodies]
    assert series["last"] == [1]


def test_a_new_epoch_is_seen_at_once(ask: Callable[..., Any], place: Path) -> None:
    flow = Flow(place)
    ledger = begun(flow)
    for epoch in (1, 2, 3):
        folded(flow, ledger, 1, START, None)
        assert f"Epoch {epoch} generation 1" in text_of(settled(ask, "dags/rule.counted"))
        assert ask("dags/rule.counted/history.json").json()["series"]["last"] == list(range(1, epoch + 1))


def test_epochs_by_pages(ask: Callable[..., Any], place: Path) -> None:
    flow = Flow(place)
    ledger = begun(flow)
    for _ in range(30):
        folded(flow, ledger, 1, START, None)
    numbers = r'<th scope="row" class="n">(\d+)</th>\s*<td class="nowrap">'
    first = settled(ask, "dags/rule.counted")
    assert re.findall(numbers, first) == [str(number) for number in range(30, 5, -1)]
    assert "upto=5#epochs" in first
    older = settled(ask, "dags/rule.counted?generation=1&upto=5")
    assert re.findall(numbers, older) == ["5", "4", "3", "2", "1", "0"]


def test_a_backfill_tells_its_interval(ask: Callable[..., Any], place: Path) -> None:
    flow = ran(place)
    end = START + 60_000_000
    done = Backfill(number=1, begin=START, end=end, high=end, upto=1, entry="", column="s", shift=0, counts={},
                    restated={"events": 4}, digests={}, results=Digest(), rule="{}", rule_hash="h")  # fmt: skip
    ledger = Ledger.open(flow.place.ledger, "by hand")
    ledger.start_backfill(done)
    ledger.end_backfill(Backfilled(number=1, intent=done.digest, tables={}, removed={}))
    page = text_of(settled(ask, "dags/rule.counted"))
    assert "2001-01-01 00:00:00Z to 2001-01-01 00:01:00Z; 4 late rows included" in page


def test_rows_set_apart(ask: Callable[..., Any], place: Path) -> None:
    flow = ran(place)
    set_apart(flow.place.late, 1, 1, 2)
    page = text_of(settled(ask, "dags/rule.counted/rows"))
    assert "They arrived below the watermark. 2 in all." in page
    assert "0 in all" in page


def test_the_audit_is_made_when_it_is_asked_for(ask: Callable[..., Any], place: Path) -> None:
    from floodmark.audit.certificate import audit

    flow = ran(place)
    assert "check now" in settled(ask, "dags/rule.counted")
    found = audit("counted", flow.home, deep=False)
    assert found is not None
    page = text_of(settled(ask, "dags/rule.counted/audit"))
    assert found.verdict.upper() in page
    assert found.head in page
    assert all(finding.what in page for finding in found.findings)
    assert f"Audit {found.verdict}" in text_of(settled(ask, "dags/rule.counted"))


def test_a_ledger_that_cannot_be_read_harms_no_other(
    ask: Callable[..., Any], place: Path, known: Callable[..., None]
) -> None:
    harmed = ran(place, "harmed")
    ran(place, "sound")
    known("harmed", "sound")
    newest = max(Path(harmed.place.ledger).glob("_delta_log/*.json"))
    newest.write_text(newest.read_text()[:40])
    with pytest.raises(FloodmarkError) as told:
        harmed.ledger()
    page = text_of(settled(ask))
    assert "1 cannot be read" in page and "1 up to date" in page
    page = text_of(settled(ask, "dags/rule.harmed"))
    assert str(told.value)[:60] in page
    assert ask("dags/rule.harmed/history.json").status_code == 503
    assert settled(ask, "dags/rule.harmed/rows")
    assert "BROKEN" in settled(ask, "dags/rule.harmed/audit")


def test_a_rule_file_whose_name_is_no_utf_8_harms_no_page(
    ask: Callable[..., Any], place: Path, known: Callable[..., None]
) -> None:
    ran(place, "sound")
    (place / "rules" / os.fsdecode(b"caf\xe9.yaml")).write_text("rule: x\n")
    file = r"caf\xe9.yaml"
    odd = broken_dag_id(file, ())
    known("sound", odd.removeprefix("rule."))
    assert file in text_of(settled(ask))
    assert f"{file}:1: rule: expected the file's name" in text_of(settled(ask, f"dags/{odd}"))
    assert settled(ask, "dags/rule.sound")


def test_a_failed_run_shows_though_the_ledger_knows_nothing_of_it(
    ask: Callable[..., Any], place: Path, known: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    from floodmark_airflow.pages import access

    ran(place)
    known("counted")
    monkeypatch.setattr(
        access, "facts_of", lambda dags: {dag: access.DagFacts(state="failed", failed=True) for dag in dags}
    )
    assert "1 failed" in text_of(settled(ask))


def test_who_works_on_a_rule(
    ask: Callable[..., Any], place: Path, known: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    from floodmark_airflow.pages import rulefacts

    ran(place)
    known("counted")
    monkeypatch.setattr(rulefacts, "holder_pid", lambda _: 7)
    monkeypatch.setattr(rulefacts, "holder_text", lambda _: "run seven holds the rule")
    assert "1 working" in text_of(settled(ask))
    assert "Held by run seven holds the rule" in text_of(settled(ask, "dags/rule.counted"))

    def forbidden(_: Path) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(rulefacts, "holder_pid", forbidden)
    assert "1 up to date" in text_of(settled(ask))
    assert "Held by unknown" in text_of(settled(ask, "dags/rule.counted"))


def test_no_rules_no_folder_and_other_dags(ask: Callable[..., Any], rules: Path) -> None:
    assert "There is no rule here yet" in settled(ask)
    assert ask("dags/other").status_code == 404
    assert "not a Floodmark rule" in text_of(ask("dags/other").text)
    rules.rmdir()
    assert "expected a folder of rule files" in settled(ask)
    assert ask("dags/rule.one").status_code == 404


def test_an_environment_that_is_none_is_told_and_to_those_alone_who_may_know(
    ask: Callable[..., Any], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran(place)
    monkeypatch.setenv("FLOODMARK_ENV", "dev")
    for path, code in (("", 200), ("dags/dev.rule.counted", 404)):
        nobody, found = ask(path, None), ask(path)
        assert (nobody.status_code, found.status_code) == (401, code), path
        assert "nosniff" in nobody.headers["x-content-type-options"]
        assert "expected the file of environment dev" in found.text and "environment dev" not in nobody.text
    (place / "env").mkdir()
    (place / "env" / "dev.env").write_text("")
    wait(lambda: ask("dags/dev.rule.counted").status_code == 200)  # what was read before may be shown once more
    assert "not run yet" in settled(ask, "dags/dev.rule.counted")


def test_rule_files_that_take_long_to_read_hold_nobody_up(
    ask: Callable[..., Any], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from floodmark_airflow.pages import rulefacts

    go = threading.Event()
    read = rulefacts.RuleFiles.catalog
    monkeypatch.setattr(rulefacts.RuleFiles, "catalog", lambda self: go.wait(60) and read(self))
    ran(place)
    page, rule = ask(), ask("dags/rule.counted", again=False)
    assert (page.status_code, rule.status_code, rule.headers["retry-after"]) == (200, 503, "1")
    assert 'http-equiv="refresh"' in page.text and 'http-equiv="refresh"' in rule.text
    go.set()
    assert "counted" in settled(ask, "dags/rule.counted")


def test_airflow_has_the_page_in_its_navigation_and_the_tab_on_each_dag(web: Any) -> None:
    from starlette.testclient import TestClient

    client = TestClient(web[1], headers={"Authorization": f"Bearer {token('ADMIN')}"})
    assert client.get("/api/v2/plugins/importErrors").json()["import_errors"] == []
    plugins = client.get("/api/v2/plugins").json()["plugins"]
    views = next(one["external_views"] for one in plugins if one["name"] == "floodmark")
    assert [(view["destination"], view["href"]) for view in views] == [
        ("nav", "floodmark/"),
        ("dag", "floodmark/dags/{DAG_ID}"),
    ]
    assert len({view["url_route"] for view in views}) == 2


def test_loading_the_plugin_loads_nothing_heavy() -> None:
    heavy = "fastapi jinja2 deltalake pyarrow pyspark sqlglot"
    text = f"import sys, floodmark_airflow.pages.web; print(set(sys.modules) & set('{heavy}'.split()))"
    found = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"
