"""Seeds of the tests that play random programs: told with every result, and given again by FLOODMARK_SEED."""

from __future__ import annotations

import os
import random
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import seed as seeded
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test


def play(machine: type[RuleBasedStateMachine], examples: int, steps: int, **more: Any) -> None:
    """Play `examples` random programs of up to `steps` steps. A failing one is made small, and told with its seed."""
    given = os.environ.get("FLOODMARK_SEED")
    number = int(given) if given else random.SystemRandom().getrandbits(32)
    told = f"FLOODMARK_SEED={number}"
    print(f"{machine.__name__}: {examples} programs; {told} plays them again")
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        print_blob=True,
        database=None,  # a program of an earlier run would be played first, and is not of this seed
        suppress_health_check=list(HealthCheck),
        **more,
    )
    try:
        run_state_machine_as_test(seeded(number)(machine), settings=chosen)
    except BaseException as fault:
        fault.add_note(f"played with {told}")
        raise


WITHOUT_SHRINKING = [phase for phase in Phase if phase not in (Phase.shrink, Phase.explain)]
