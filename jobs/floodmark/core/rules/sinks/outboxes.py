"""Where the outbox of a target is."""

from __future__ import annotations

import re
from hashlib import sha256

from floodmark.core.text.tablenames import last_part


def outbox_of(address: str) -> str:
    """The folder in the rule's home, by the target's address alone: a new `name` of the sink leaves it where it is."""
    label = re.sub(r"[^A-Za-z0-9._-]", "_", last_part(address))[:60]
    return f"outbox/{label}-{sha256(address.encode()).hexdigest()[:8]}"
