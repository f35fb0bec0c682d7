"""Where the outbox of a target is, and the columns of the rows that the target refused."""

from __future__ import annotations

import re
from hashlib import sha256

from floodmark.core.text.tablenames import last_part

# Beside the columns of the outbox: why it was refused, the epoch that gave it, and which row of which portion it is.
ASIDE = ("_reason", "_generation", "_epoch", "_seq", "_number", "_at")


def outbox_of(address: str) -> str:
    """The folder in the rule's home, by the target's address alone: a new `name` of the sink leaves it where it is."""
    label = re.sub(r"[^A-Za-z0-9._-]", "_", last_part(address))[:60]
    return f"outbox/{label}-{sha256(address.encode()).hexdigest()[:8]}"
