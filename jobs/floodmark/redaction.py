"""Users, passwords and queries in the addresses of a text: found, and taken out of what is told."""

from __future__ import annotations

import re

WITH_USER = ("abfs", "abfss", "wasb", "wasbs")  # container@account
# Also in an address that lacks a slash: a user with a password, and a user alone. Bounded, for texts may be long.
_USER = re.compile(r"(:/|//)/*[^/\s@'\"]{0,100}:[^\s@'\"]{0,400}@")
_USER_ALONE = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30}):/+[^/\s@'\"]{1,400}@")
_QUERY = re.compile(r"(:/[^\s?'\"]{0,2000})\?[^\s'\"]+")


def has_password(text: str) -> bool:
    """Whether an address in the text has a password in it."""
    return bool(_USER.search(text))


def names_user(text: str) -> bool:
    """Whether an address in the text has a user in it, with or without a password."""
    alone = any(match[1].lower() not in WITH_USER for match in _USER_ALONE.finditer(text))
    return alone or has_password(text)


def redacted(text: str) -> str:
    """The text without the users, passwords and queries of the addresses in it."""
    without = _USER.sub(lambda found: f"{'://' if found[1] == ':/' else '//'}***@", text)
    return _QUERY.sub(r"\1?***", _USER_ALONE.sub(_without_user, without))


def _without_user(found: re.Match[str]) -> str:
    return found[0] if found[1].lower() in WITH_USER else f"{found[1]}://***@"
