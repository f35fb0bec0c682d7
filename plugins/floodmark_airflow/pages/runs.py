"""Airflow's facts about rules: from the rule's own DAG and, if it is in a group, from the group's DAG."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from floodmark.core.rules.rule import Rule
from floodmark_airflow.naming import RUN, group_id
from floodmark_airflow.pages import access
from floodmark_airflow.pages.access import DagFacts


def facts_of(rules: Mapping[str, Rule]) -> dict[str, DagFacts]:
    """The facts of each rule, by DAG id."""
    groups = {group_id(rule.group) for rule in rules.values() if rule.group}
    known = access.facts_of({*rules, *groups})
    failed = [known[dag].ended for dag in groups & known.keys() if known[dag].failed]
    reasons = access.returned(RUN, failed) if failed else {}
    found = {dag: known.get(dag, DagFacts()) for dag in rules}
    for dag, rule in rules.items():
        group = rule.group and group_id(rule.group)
        if group in known:
            found[dag] = of_group(rule.rule, found[dag], known[group], reasons.get(group))
    return found


def of_group(rule: str, own: DagFacts, group: DagFacts, failed: Collection[str] | None) -> DagFacts:
    """A rule's newest run, of its own DAG or of its group's; and whether the group's DAG is paused.

    `failed`: the rules that failed in the group's newest ended run; None: all of them.
    """
    if group.failed and failed is not None and rule not in failed:
        group = replace(group, failed=False, state="success" if group.state == "failed" else group.state)
    newest, last = max(own, group, key=lambda one: one.run), max(own, group, key=lambda one: one.ended)
    return replace(newest, paused=group.paused, ended=last.ended, failed=last.failed)
