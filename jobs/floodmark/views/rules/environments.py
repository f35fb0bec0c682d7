"""Check that no table is a sink in two environments."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from floodmark.core.rules import environments
from floodmark.core.rules.kinds import CODE
from floodmark.core.rules.rule import Rule, load_rules
from floodmark.core.text.addresses import identity
from floodmark.errors import NotOwned

NONE = "no environment"


def check_no_shared_sinks(rule: Rule, folder: Path, env: Mapping[str, str]) -> list[str]:
    """Refuse a sink of the rule that a rule of another environment writes, too. Raises NotOwned.

    Returns a message for each environment that could not be compared, because the rule cannot be read there.
    """
    here = env.get(environments.NAMED) or None
    others = [name for name in (None, *environments.names(folder)) if name != here]
    mine = {identity(address): address for address in _places(rule)}
    return [said for name in others for said in _compared(rule, mine, folder, environments.within(env, name), name)]


def _places(rule: Rule) -> list[str]:
    """The addresses that are one place in all environments: a connection or a class may lead elsewhere in each."""
    leads = {"connection", CODE}
    return [sink.address for sink in rule.sinks if sink.address and not leads & sink.options.keys()]


def _compared(rule: Rule, mine: dict[str, str], folder: Path, env: Mapping[str, str], name: str | None) -> list[str]:
    known, _ = load_rules(folder, env, lambda _: True)  # their own environment checks them
    for other in known.values():
        for address in _places(other):
            found = mine.get(identity(address))
            if found is not None:
                raise NotOwned(_clash(found, rule, other, name))
    of = f"environment {name}" if name else NONE
    return [] if rule.rule in known else [f"{of}: the rule cannot be read there, so its sinks were not compared"]


def _clash(address: str, rule: Rule, other: Rule, name: str | None) -> str:
    of = f"environment {name}" if name else "the rules without an environment"
    return (
        f"sink {address} of rule {rule.rule}: expected an address that no other environment uses, found that rule "
        f"{other.rule} of {of} writes to it, too: use a variable, such as ${{LAKE}}, with another value in "
        "each env/NAME.env"
    )
