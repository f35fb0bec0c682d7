"""What people see and do in Airflow's UI, by a real browser and a real `airflow standalone`.

What is right is read from ledger and sink by delta-rs, and computed in plain Python; no code is shared with the pages.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from local_airflow import USER
from playwright.sync_api import Browser, expect
from support.flow import START, STATELESS, Flow, event, rows_of
from support.looking import Person, cells
from support.model import LATENESS
from support.oracle import ordered, tumbling
from support.standalone import VIEWER, Standalone

pytestmark = [pytest.mark.prove, pytest.mark.timeout(1200)]
HOSTILE = '<img src="x" onerror="top.owned=1"><script>top.owned=1</script>'
EPOCHS = [[event(60 * at + second, "ab"[second % 2], float(second)) for second in range(4 + 3 * at)] for at in range(5)]
LATE = [event(5, HOSTILE, 100.0), event(65, "late", 7.0)]
ARRIVED = [*EPOCHS, [*LATE, event(400, "c")]]  # a file each, and so an epoch each
BEGIN, END = START, START + timedelta(minutes=2)  # the windows of the late rows
OF_A_RULE = ("", "/history.json", "/rows", "/audit")
ROUTES = ("", *(f"dags/rule.counted{part}" for part in OF_A_RULE), "static/charts.js", "no/such/page")


@pytest.fixture(scope="module")
def flow(root: Path) -> Flow:
    """A rule with an epoch for each file; beside it one whose texts are scripts, and a file that is no rule."""
    found = Flow(root, settings={"epoch": {"max_files": 1}}, stream={"start": {"version": 0}}, sinks=1)
    found.write_rule()
    sql = f"{STATELESS} AND k <> '{HOSTILE}'"
    Flow(root, "hostile", sql, settings={"description": HOSTILE}).write_rule()
    (root / "rules" / "bad.yaml").write_text(f"rule: '{HOSTILE}'\n")
    return found


@pytest.fixture(scope="module")
def airflow(browser: Browser, flow: Flow) -> Iterator[Standalone]:
    """Started. The browser comes first: nobody should wait for Airflow only to learn that there is none."""
    root = flow.root
    with Standalone(root / "airflow", root / "rules", root / "home", root / "lake") as found:
        found.prepare()
        found.start()
        found.wait_healthy()
        yield found


@pytest.fixture(scope="module")
def admin(airflow: Standalone, browser: Browser) -> Iterator[Person]:
    person = Person(browser, airflow.address).sign_in(USER, airflow.password)
    yield person
    person.close()


@pytest.fixture(scope="module")
def ran(admin: Person, flow: Flow) -> Flow:
    """The rule, run once by the form, as somebody comes to it from the rule's page."""
    for events in ARRIVED:
        flow.arrive(events)
    admin.open_rule(flow.name).get_by_role("link", name="DAG, trigger a run").click()
    admin.watch(flow.name, admin.trigger())
    return flow


@pytest.fixture(scope="module")
def backfilled(admin: Person, ran: Flow) -> Flow:
    """The same, and the windows of the late rows computed again, by the form."""
    admin.page.goto(f"/dags/rule.{ran.name}")
    admin.watch(ran.name, admin.trigger("backfill", {"from": BEGIN, "to": END}))
    return ran


def commits(flow: Flow) -> list[dict[str, Any]]:
    """What the ledger says of each epoch that ended: its number, rows, seconds, watermark, and when it ended."""
    rows = [row for row in rows_of(flow.place.ledger) if row["kind"] == "commit" and row["epoch"] > 0]
    return [_commit(row, json.loads(row["body"])) for row in sorted(rows, key=lambda row: row["seq"])]


def _commit(row: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
    counts = body["counts"].values()
    rows = {name: sum(one[name] for one in counts) for name in ("read", "folded", "late", "dead")}
    spent = round(sum(body["seconds"].values()), 3)
    mark = datetime.fromtimestamp(body["watermark"] / 1e6, UTC).isoformat()
    return {"epoch": row["epoch"], **rows, "written": body["output_rows"], "seconds": spent,
            "watermark": moment(mark), "at": moment(row["at"])}  # fmt: skip


def moment(text: str) -> str:
    return text[:19].replace("T", " ") + "Z"


def sink(flow: Flow) -> list[tuple[Any, ...]]:
    return ordered(tuple(row.values()) for row in rows_of(flow.sink()))


def answer(events: list[Any]) -> list[tuple[Any, ...]]:
    return tumbling(events, max(one["at"] for one in events) - LATENESS)


# --- what an admin sees and does


def test_a_rule_that_has_not_run_is_listed_as_one(admin: Person, flow: Flow) -> None:
    line = admin.open_rules().get_by_role("row").filter(has_text=flow.name)
    expect(line).to_contain_text("not run yet")


def test_a_run_from_the_form_folds_all_that_is_there(ran: Flow) -> None:
    found = commits(ran)
    assert [one["read"] for one in found] == [len(events) for events in ARRIVED]
    assert [one["late"] for one in found] == [0] * len(EPOCHS) + [len(LATE)]
    assert sink(ran) == answer([one for events in ARRIVED for one in events if one not in LATE])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_charts_tell_the_ledgers_numbers(airflow: Standalone, browser: Browser, ran: Flow, scheme: str) -> None:
    person = Person(browser, airflow.address, scheme).sign_in(USER, airflow.password)
    person.open_rules()
    person.shoot("rules")
    frame = person.open_tab(ran.name)
    expect(frame.locator(".u-over")).to_have_count(3)
    person.shoot("rule")
    found, told = commits(ran), person.legends()
    assert [one["rows"] for one in told] == [[one["at"], f"{one['read']}", f"{one['written']}"] for one in found]
    assert [one["watermark"] for one in told] == [[one["at"], one["watermark"]] for one in found]
    seconds = [[float(text) for text in one["seconds"][1:]] for one in told]
    assert seconds == [[one["seconds"], one["seconds"]] for one in found]
    assert all(person.ink(chart) > 100 for chart in ("rows", "seconds", "watermark"))
    person.shoot("charts", frame.get_by_role("heading", name="All rows of this generation"))
    person.close()


def test_tables_and_sums_tell_the_ledgers_numbers(admin: Person, ran: Flow) -> None:
    frame, found = admin.open_rule(ran.name), commits(ran)
    frame.get_by_text("The same as a table").click()
    beside = cells(frame.get_by_role("table", name="Rows, duration and watermark over time"))
    assert beside == [[one["at"], f"{one['epoch']}", f"{one['read']}", f"{one['written']}", f"{one['late']}",
                       f"{one['dead']}", "0", f"{one['seconds']:.2f}", f"{one['seconds']:.2f}", one["watermark"]]
                      for one in found]  # fmt: skip
    epochs = cells(frame.get_by_role("table", name="Epochs of generation 1"))
    assert [[line[0], *line[3:11]] for line in epochs if line[1].strip() == "committed"] == [
        [f"{one['epoch']}", f"{one['read']}", f"{one['folded']}", f"{one['late']}", f"{one['dead']}", "0",
         f"{one['written']}", one["watermark"], one["at"]] for one in reversed(found)]  # fmt: skip
    for name in ("read", "folded", "late", "dead"):
        expect(frame.locator(".facts.small div").filter(has_text=name)).to_have_text(
            f"{name}{sum(one[name] for one in found)}"
        )


def test_a_backfill_from_the_form_takes_the_late_rows_in(admin: Person, backfilled: Flow) -> None:
    assert sink(backfilled) == answer([one for events in ARRIVED for one in events])
    (row,) = [row for row in rows_of(backfilled.place.ledger) if row["kind"] == "backfill"]
    body = json.loads(row["body"])
    assert [datetime.fromtimestamp(body[name] / 1e6, UTC) for name in ("begin", "end")] == [BEGIN, END]
    frame = admin.open_rule(backfilled.name)
    epochs = cells(frame.get_by_role("table", name="Epochs of generation 1"))
    assert epochs[0][1].strip() == "backfilled"
    assert epochs[0][-1].strip() == "2001-01-01 00:00:00Z to 2001-01-01 00:02:00Z; 2 late rows included"
    admin.shoot("epochs", frame.get_by_role("heading", name="Delivery"))


def test_the_audit_is_proven_after_both(admin: Person, backfilled: Flow) -> None:
    frame = admin.open_rule(backfilled.name)
    frame.get_by_role("link", name="Audit").click()
    expect(frame.get_by_text("PROVEN")).to_be_visible()
    admin.shoot("audit")


def test_stored_text_is_shown_and_never_run(admin: Person, ran: Flow) -> None:
    frame = admin.open_rules()
    expect(frame.get_by_text(HOSTILE).first).to_be_visible()
    frame = admin.open_rule("hostile")
    expect(frame.get_by_text(HOSTILE).first).to_be_visible()
    expect(frame.locator(".code")).to_contain_text(HOSTILE)
    admin.open_rule(ran.name).get_by_role("link", name="Late and dead rows").click()
    expect(admin.frame.get_by_role("cell", name=HOSTILE)).to_be_visible()
    admin.shoot("late")
    admin.page.goto("/dags/rule.hostile")
    admin.page.get_by_test_id("markdown-button").first.click()
    expect(admin.page.get_by_role("dialog")).to_contain_text(HOSTILE)
    admin.shoot("docs")
    for scope in admin.page.frames:
        assert scope.evaluate("window.owned") is None
    assert [told for told in admin.said if "/floodmark/" in told[0] or told[0] in ("page", "dialog")] == []


def test_the_pages_go_by_keyboard_and_have_names_for_what_is_drawn(admin: Person, ran: Flow) -> None:
    admin.page.goto(f"/floodmark/dags/rule.{ran.name}")
    admin.page.keyboard.press("Tab")
    expect(admin.page.locator(":focus")).to_have_text("Skip to content")
    admin.page.keyboard.press("Tab")
    admin.page.keyboard.press("Tab")
    expect(admin.page.locator(":focus")).to_have_text("Overview")
    for name in ("Rows read and rows written over time", "Seconds of an epoch over time", "The watermark over time"):
        expect(admin.page.get_by_role("img", name=name)).to_be_visible()
    assert admin.page.get_by_role("heading", level=1).count() == 1


# --- who may do less


def test_a_viewer_sees_the_rule_and_cannot_trigger_it(airflow: Standalone, browser: Browser, ran: Flow) -> None:
    person = Person(browser, airflow.address).sign_in(VIEWER, airflow.logins[VIEWER])
    frame = person.open_rule(ran.name)
    expect(frame.locator(".u-over")).to_have_count(3)
    runs = len(airflow.get("dags", f"rule.{ran.name}", "dagRuns")["dag_runs"])
    frame.get_by_role("link", name="DAG, trigger a run").click()
    person.is_refused()
    person.shoot("viewer")
    refused = person.page.request.post(f"/api/v2/dags/rule.{ran.name}/dagRuns", data={"logical_date": None})
    assert refused.status == 403
    assert len(airflow.get("dags", f"rule.{ran.name}", "dagRuns")["dag_runs"]) == runs
    person.close()


def test_who_is_not_signed_in_sees_nothing(airflow: Standalone, browser: Browser, ran: Flow) -> None:
    nobody = Person(browser, airflow.address)
    for route in ROUTES:
        found = nobody.page.goto(f"/floodmark/{route}")
        assert found is not None and found.status == 401, route
        assert ran.name not in found.text().replace(route, "")
    for path in ("/plugin/floodmark", f"/dags/rule.{ran.name}/plugin/floodmark-rule"):
        nobody.page.goto(path)
        expect(nobody.page.get_by_label("Password")).to_be_visible()
        assert nobody.page.locator("iframe").count() == 0
    nobody.close()
