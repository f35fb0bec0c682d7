"""The form (DAG params) of a manual run, and the operation that a run selects."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import Param
from airflow.sdk.exceptions import AirflowFailException

from floodmark_airflow.naming import dag_id
from floodmark_airflow.triggers.abandons import Abandon
from floodmark_airflow.triggers.backfills import Backfill, of_airflow, run_before
from floodmark_airflow.triggers.corrections import Correct
from floodmark_airflow.triggers.lives import Adopt, Drop, Recheck, Rename, Retire, Return
from floodmark_airflow.triggers.operations import Operation
from floodmark_airflow.triggers.replays import Replay
from floodmark_airflow.triggers.resets import Reset

if TYPE_CHECKING:
    from floodmark.core.rules.rule import Rule
    from floodmark.views.rules.downstream import Reader

RUN = "run"
LIVES = (Adopt, Rename, Retire, Return, Drop)
OPERATIONS: dict[str, type[Operation]] = {
    one.name: one for one in (Backfill, Correct, Replay, Recheck, Abandon, Reset, *LIVES)
}


def form(readers: Sequence[Reader] = ()) -> dict[str, Param]:
    """The fields of the form when somebody triggers a rule's DAG manually; a scheduled run takes the defaults.

    `readers`: the readers of the rule's sinks, which operations affect. Airflow marks a field as required if its type
    excludes null: here only the operation. Airflow can't hide a field until an operation is chosen, but it folds
    sections: the first has what operations share, each other one the fields of one operation.
    """
    warning = f" {downstream(readers)}" if readers else ""
    found = {
        "operation": Param(
            RUN,
            type="string",
            enum=[RUN, *OPERATIONS],
            values_display={
                RUN: f"{RUN}: process new input",
                **{name: f"{name}: {one.about}" for name, one in OPERATIONS.items()},
            },
            description=f"An operation with fields of its own has a section below.{warning}",
        ),
        "confirm": Param(None, type=["null", "string"], description=_about_confirm()),
        "dry_run": Param(False, type=["null", "boolean"], description="Only log what would be done"),
    }
    for one in OPERATIONS.values():
        found |= one.params()
    return found


def _about_confirm() -> str:
    asking = [name for name, one in OPERATIONS.items() if one.confirm is not None]
    return f"The rule's name, as confirmation: for {', '.join(asking[:-1])} and {asking[-1]}. Others do not need it"


def downstream(readers: Sequence[Reader]) -> str:
    """The effects on other rules, as sentences; a `dry_run` lists them by rule.

    The text gives only the number of these rules: a user who may trigger this DAG may lack access to them.
    """
    folding, looking = (len({one.rule for one in readers if one.kind == kind}) for kind in ("stream", "lookup"))
    said = []
    if folding:
        said.append(
            f"Other rules that read this rule's results as a stream: {folding}. After a reset or a backfill, the "
            "next run of each does what its `on_rewrite` says; where that is `stop`, or after a reset `correct` with "
            "a `lateness`, it stops until it is reset, too. After a drop it finds no table; after a retirement it gets "
            "no new rows"
        )
    if looking:
        said.append(
            f"Other rules that look rows up in it: {looking}. After a reset they find no rows until the next run"
        )
    return ". ".join([*said, "The task's log names them"])


def operation_of(rule: Rule, context: Mapping[str, Any]) -> Operation | None:
    """The operation of a run; None if the run folds new input. Raises AirflowFailException."""
    params, run = filled_in(context), context.get("dag_run")
    check_known(params, {*params, *_conf(context)})
    check_fields(params)
    kind = chosen(context)
    if kind is not None:
        return kind.from_form(rule, params)
    if run is None or str(getattr(run.run_type, "value", run.run_type)) != "backfill":
        return None
    return of_airflow(rule, run.logical_date, is_dry(context), run_before(context["ti"]))


def chosen(context: Mapping[str, Any]) -> type[Operation] | None:
    """The kind of operation that the form asks for; None if the run folds new input. Raises as `filled_in` does."""
    return OPERATIONS.get(str(filled_in(context).get("operation")))


def filled_in(context: Mapping[str, Any]) -> Mapping[str, Any]:
    """The values of the form. Raises AirflowFailException if Airflow has left out what the run was triggered with.

    By a setting, Airflow gives each task the defaults of the form: a dry run would write, and a reset would be an
    ordinary run.
    """
    params, conf = context.get("params") or {}, _conf(context)
    known = form() if conf else {}
    for field, value in conf.items():
        found = params.get(field)
        if field in known and found != value and (_filled(found) or _filled(value)):
            raise AirflowFailException(
                f"{field}: expected {value!r}, with which this run was triggered, found {found!r}: Airflow ignores the "
                "form of a run while `dag_run_conf_overrides_params` of [core] is False. Set it to True "
                "(AIRFLOW__CORE__DAG_RUN_CONF_OVERRIDES_PARAMS), or use the command line"
            )
    return params


def _conf(context: Mapping[str, Any]) -> Mapping[str, Any]:
    """What whoever triggered the run has given."""
    return getattr(context.get("dag_run"), "conf", None) or {}


def check_known(params: Mapping[str, Any], given: Iterable[str]) -> None:
    """Raise AirflowFailException for a field that the form does not have: `dry-run` would be no dry run.

    A run that folds new input may have fields of whoever triggered it, unless they look like the form's.
    """
    known, operates = form(), params.get("operation") in OPERATIONS
    for field in sorted(set(given) - set(known)):
        near = _near(field, known)
        if not near and not operates:
            continue
        hint = f"did you mean {near[0]}?" if near else f"fields: {', '.join(known)}"
        raise AirflowFailException(f"{field}: expected a field of the form, found none of this name: {hint}")


def refuse_form(context: Mapping[str, Any]) -> None:
    """Raise AirflowFailException for a field of the form in a run of several rules: none of their tasks reads it.

    Otherwise a `dry_run` of a group would change its tables. Each task of such a DAG calls this first.
    """
    known, dag = form(), getattr(context.get("dag_run"), "dag_id", None)
    for field, value in _conf(context).items():
        if _near(field, known):
            raise AirflowFailException(
                f"{field}: expected no field of the form in a run of {dag}, which runs all of "
                f"its rules as usual, found {value!r}: trigger the DAG {dag_id('NAME')} of one rule with it"
            )


def _near(field: str, known: Iterable[str]) -> list[str]:
    """The field of the form that has this name, or that a typing error may have meant."""
    return difflib.get_close_matches(field, list(known), 1, cutoff=0.8)


def check_fields(params: Mapping[str, Any]) -> None:
    """Raise AirflowFailException if a field is filled in that the chosen operation doesn't have.

    Otherwise a user who fills in an interval but forgets to choose `backfill` would see a successful run.
    """
    name = str(params.get("operation") or RUN)
    own = OPERATIONS[name].takes() if name in OPERATIONS else ()
    allowed = {*own, "confirm"} if name in OPERATIONS else set()  # a needless confirmation does no harm
    takes = f"takes the fields {', '.join((*own, 'dry_run'))}" if own else "takes only dry_run"
    of = {field: f"a field of {one.name}" for one in OPERATIONS.values() for field in one.params()}
    for field, whose in {**of, "confirm": "for operations that change or end the rule"}.items():
        if field not in allowed and _filled(params.get(field)):
            raise AirflowFailException(
                f"{field}: expected no value with `operation: {name}`, which {takes}, found {params[field]!r}: it is "
                f"{whose}. Choose another operation, or leave the field empty"
            )


def _filled(value: Any) -> bool:
    """Whether a field is filled in; by default, all fields of operations are empty or false."""
    return bool(value.strip() if isinstance(value, str) else value)


def is_dry(context: Mapping[str, Any]) -> bool:
    """Whether a run, also one that folds new input, only reports what it would do. Raises as `filled_in` does."""
    return bool(filled_in(context).get("dry_run"))
