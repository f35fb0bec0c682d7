"""The routes (URLs) of the pages. All require `SIGNED_IN`; those of one DAG also require its permissions."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from starlette.exceptions import HTTPException as AnyHTTPException

from floodmark.connectors.relay.backlogs import Undelivered, target_lag
from floodmark.core.lifecycle import freshness
from floodmark.core.protocol.expectations import expectation_results
from floodmark.core.rules.groups import groups
from floodmark.core.rules.rule import Rule
from floodmark.core.rules.sinks.delivery import delivery
from floodmark.errors import FloodmarkError, Refused, message
from floodmark.ledger.delta import tables
from floodmark.ledger.home import Home
from floodmark.views.history import History, expected, sums
from floodmark.views.rules.rulefiles import Catalog
from floodmark.views.status.glance import Glance
from floodmark.views.status.rulestatus import behind
from floodmark_airflow import naming
from floodmark_airflow.pages import access, charts, runs
from floodmark_airflow.pages.access import CODE, LOGS, RUN, DagFacts, GetUserDep
from floodmark_airflow.pages.cache import Answer
from floodmark_airflow.pages.condition import HIDDEN, Condition, condition
from floodmark_airflow.pages.epochrows import EpochPage, epoch_page
from floodmark_airflow.pages.rulefacts import Facts, dags_of, glance_of, patience
from floodmark_airflow.pages.staticfiles import page, static_files

log = logging.getLogger(__name__)

OfRuns = Annotated[str, Depends(access.of_dag(RUN))]
OfLogs = Annotated[str, Depends(access.of_dag(LOGS))]
Number = Annotated[int | None, Query(ge=0, le=10**12)]
WORDS = {401: "Sign in to Airflow to see this page.", 403: "Your Airflow account may not see this page."}
UNKNOWN = "There is no such page."
READING = "The rule files are being read; the page reloads itself."
AGAIN = {"Retry-After": "1"}  # seconds


def application(facts: Facts) -> FastAPI:
    """The pages as an application of their own."""
    made = FastAPI(
        docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False, dependencies=[access.SIGNED_IN]
    )
    pages = Pages(facts)
    for path, answer in (
        ("/", pages.rules),
        ("/dags/{dag_id}", pages.rule),
        ("/dags/{dag_id}/history.json", pages.history),
        ("/dags/{dag_id}/rows", pages.rows),
        ("/dags/{dag_id}/audit", pages.audit),
        ("/static/{name:path}", static),
        ("/{rest:path}", nothing),  # else an unknown address would be answered without an access check
    ):
        made.add_api_route(path, answer, methods=["GET"], response_class=HTMLResponse)
    made.add_exception_handler(AnyHTTPException, refused)
    made.add_exception_handler(RequestValidationError, malformed)
    return made


def static(name: str) -> Response:
    """One of our static files, looked up by name and never by path."""
    found = static_files().get(name)
    if found is None:
        raise HTTPException(404)
    return Response(found.data, media_type=found.type)


def nothing(rest: str) -> Response:
    raise HTTPException(404)


def refused(request: Request, fault: Exception) -> Response:
    """An error as a plain page, or as JSON for a path that ends in `.json`."""
    assert isinstance(fault, AnyHTTPException)
    return _plain(request, fault.status_code, WORDS.get(fault.status_code) or _error_text(fault), fault.headers)


def malformed(request: Request, fault: Exception) -> Response:
    return _plain(request, 422, "The address contains something that is not a number.")


def _error_text(fault: AnyHTTPException) -> str:
    return UNKNOWN if fault.detail == "Not Found" else str(fault.detail)


def _plain(request: Request, code: int, words: str, headers: Any = None) -> Response:
    if request.url.path.endswith(".json"):
        return JSONResponse({"error": words}, code, headers)
    of = {"missing": words == READING, "stale": False}
    return HTMLResponse(page("plain.html", code=code, words=words, root=_root(request), **of), code, headers)


def _root(request: Request) -> str:
    """The relative address of the list of rules."""
    path = request.url.path.removeprefix(request.scope.get("root_path", ""))
    return "../" * max(0, path.count("/") - 1)


class Pages:
    """The handler of each address."""

    def __init__(self, facts: Facts):
        self._facts = facts

    def rules(self, user: GetUserDep) -> HTMLResponse:
        """The list of rules that the user may see."""
        until = patience()
        try:
            catalog, fault = self._facts.catalog(until), None
        except Refused as refusal:
            catalog, fault = Catalog(), str(refusal)
        rules, broken = dags_of(catalog or Catalog())
        allowed = access.allowed_dags(user)
        lines = self._lines(user, {dag: rule for dag, rule in rules.items() if dag in allowed}, until)
        bad = [broken[dag] for dag in sorted(broken) if dag in allowed]
        of = _freshness(line["got"] for line in lines)
        if catalog is None:
            of["missing"] = True
        return HTMLResponse(page("rules.html", root="", group=None, lines=lines, broken=bad, fault=fault, **of))

    def _group(self, user: GetUserDep, members: list[Rule], until: float) -> HTMLResponse:
        """The list of a group's rules."""
        allowed = access.allowed_dags(user)
        lines = self._lines(
            user, {dag: rule for rule in members if (dag := naming.dag_id(rule.rule)) in allowed}, until
        )
        of = _freshness(line["got"] for line in lines)
        return HTMLResponse(
            page("rules.html", root="../", group=members[0].group, lines=lines, broken=[], fault=None, **of)
        )

    def _lines(self, user: GetUserDep, rules: dict[str, Rule], until: float) -> list[dict[str, Any]]:
        """A line for each rule; rules that need attention come first. Facts of runs only for users who may see runs."""
        told = access.with_runs(user, rules)
        shown = {dag: rule for dag, rule in rules.items() if dag in told}
        dags, seen = runs.facts_of(shown), self._facts.glances(shown.values(), until)
        lines = [
            {"dag": dag, "rule": rule, "got": got, **self._condition(rule, got, dags[dag])}
            for (dag, rule), got in zip(shown.items(), seen, strict=True)
        ]
        lines += [{"dag": dag, "rule": rule, **_without_runs(rule)} for dag, rule in rules.items() if dag not in told]
        return sorted(lines, key=lambda line: (line["condition"].rank, line["dag"]))

    def _condition(self, rule: Rule, got: Answer, dag: DagFacts) -> dict[str, Any]:
        """The facts of one line. Never raises: an error of one rule doesn't affect the others in a list."""
        seen, held, now = glance_of(got), self._facts.held(rule), None
        try:
            now = freshness.fresh(rule, seen.head, seen.late, datetime.now(UTC))
            found: Condition = condition(got, seen, dag, held.by, now)
        except Exception as fault:
            log.exception("rule %s cannot be judged", rule.rule)
            found = Condition("cannot be judged", "bad", message(fault))
        told = {"seen": seen, "airflow": dag, "held": held, "condition": found, "freshness": now}
        return {**told, "tally": (found.rank, found.word)}

    def rule(self, user: GetUserDep, dag_id: OfRuns, upto: Number = None, generation: Number = None) -> HTMLResponse:
        """The page of one rule, or of a group."""
        until = patience()
        rule = self._known(dag_id, until)
        if isinstance(rule, list):
            return self._group(user, rule, until)
        if isinstance(rule, tuple):
            return HTMLResponse(page("broken.html", root="../", file=rule[0], reason=rule[1], **_freshness(())))
        got, history, waits, plan = self._facts.depth(rule, until)
        line = self._condition(rule, got, runs.facts_of({dag_id: rule})[dag_id])
        seen = line["seen"]
        audited, fresh = self._facts.audited(rule, begin=False)
        return HTMLResponse(
            page(
                "rule.html",
                **line,
                **_of_history(history.value, seen.head, rule),
                root="../",
                dag=dag_id,
                rule=rule,
                group=rule.group and naming.group_id(rule.group),
                history=history,
                waits=waits,
                plan=plan,
                audited=audited.value,
                fresh=fresh,
                behind=[behind(name, lag) for name, lag in seen.lag.items()],
                epochs=self._epochs(rule, seen.head, generation, upto),
                targets=_targets(rule, seen),
                code=access.may(user, dag_id, CODE),
                **_freshness((got, history, waits, plan)),
            )
        )

    def _epochs(self, rule: Rule, head: Any, generation: int | None, upto: int | None) -> EpochPage | None:
        """A page of the rule's epochs. 404 for an unknown generation."""
        if head is None:
            return None
        home = Home(self._facts.home, rule.rule)
        try:
            ledger = tables.open_table(home.ledger)
            found = ledger and epoch_page(
                rule, head, ledger, head.generation if generation is None else generation, upto
            )
        except FloodmarkError:  # the page shows it, above
            return None
        if found is None and generation is not None:
            raise HTTPException(404, f"The rule has no generation {generation}.")
        return found or None

    def history(self, dag_id: OfRuns) -> JSONResponse:
        """The points of the charts, of the newest generation."""
        rule = self._rule(dag_id)
        found = self._facts.history(rule)
        if found.fault is not None:
            raise HTTPException(503, found.fault)
        if found.missing:
            raise HTTPException(503, "The history is being read.", AGAIN)
        past: History | None = found.value
        newest = past.generations[-1] if past and past.generations else None
        return JSONResponse({"generation": newest, "series": charts.series(past.of(newest)) if past and newest else {}})

    def rows(self, dag_id: OfLogs) -> HTMLResponse:
        """A sample of the late and dead rows."""
        rule = self._rule(dag_id)
        found = self._facts.quarantined(rule)
        of = _freshness(found.values())
        return HTMLResponse(page("rows.html", root="../../", dag=dag_id, rule=rule, apart=found, **of))

    def audit(self, dag_id: OfRuns) -> HTMLResponse:
        """The rule's certificate; audits again if the last one is outdated."""
        rule = self._rule(dag_id)
        got, fresh = self._facts.audited(rule, begin=True)
        values = {"dag": dag_id, "rule": rule, "got": got, "fresh": fresh}
        return HTMLResponse(page("audit.html", root="../../", **values, missing=got.pending, stale=False))

    def _rule(self, dag_id: str) -> Rule:
        found = self._known(dag_id, patience())
        if isinstance(found, tuple):
            raise HTTPException(404, f"{found[0]} cannot be used.")
        if isinstance(found, list):
            raise HTTPException(404, "This is a group; each of its rules has its own page.")
        return found

    def _known(self, dag_id: str, until: float) -> Rule | list[Rule] | tuple[str, str]:
        """The rule of a DAG, or the rules of a group's, or file and reason of an invalid file. 404 for other DAGs."""
        try:
            catalog = self._facts.catalog(until)
        except Refused as refusal:
            raise HTTPException(404, str(refusal)) from refusal
        if catalog is None:
            raise HTTPException(503, READING, AGAIN)
        rules, broken = dags_of(catalog)
        members = {naming.group_id(name): group for name, group in groups(rules.values()).items()}
        found = rules.get(dag_id) or members.get(dag_id) or broken.get(dag_id)
        if found is None:
            raise HTTPException(404, "This DAG is not a Floodmark rule.")
        return found


def _without_runs(rule: Rule) -> dict[str, Any]:
    """The line of a rule whose runs the user may not see: only facts of its file."""
    tally = (HIDDEN.rank, HIDDEN.word)
    return {
        "got": Answer(),
        "seen": Glance(delivery=delivery(rule)),
        "airflow": None,
        "condition": HIDDEN,
        "tally": tally,
    }


def _targets(rule: Rule, seen: Glance) -> list[tuple[Undelivered, float, float | None]]:
    """Each target; for how long the oldest row that it has not got waits, and how old its newest row is, in seconds."""
    now = datetime.now(UTC)
    return [(one, one.age(now), target_lag(rule, seen.head, one, now)) for one in seen.targets]


def _freshness(found: Iterable[Answer]) -> dict[str, bool]:
    """`missing`: facts are still being read, so the page has to reload; `stale`: some are being renewed."""
    found = list(found)
    return {"missing": any(one.missing for one in found), "stale": any(one.pending for one in found)}


def _of_history(past: History | None, head: Any, rule: Rule) -> dict[str, Any]:
    """Sums and the table beside the charts, of the newest generation; `generations`: all with epochs."""
    ends = past.of(head.generation) if past and head else []
    table = charts.points(ends, charts.LINES)
    each = charts.per_point(ends)
    return {
        "sums": sums(ends),
        "expected": expectation_results(rule, expected(ends)),
        "table": table,
        "ended": len(ends),
        "each": each,
        "generations": past.generations if past else [],
    }
