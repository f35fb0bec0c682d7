"""Find users, passwords and queries in the addresses of a text, and remove them from messages."""

from __future__ import annotations

import re
from collections.abc import Iterator

WITH_USER = ("abfs", "abfss", "wasb", "wasbs")  # container@account
# An address ends at a blank or a quote. Each search reads a text once, for texts may be long.
EXAMPLE = "LOGIN:PASSWORD"  # of our own messages
_RUN = re.compile(r"[^\s'\"]+")
_MARK = re.compile(r":/+|//+")  # also of an address that lacks a slash
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*\Z")
_LONGEST_SCHEME = 31
_MORE = re.compile(r"[?#]")  # begins a query or a fragment
_BEGUN = re.compile(r"^//+|:/+")  # what comes before login, password and host
_LOGIN = re.compile(r"[^/?#]*")
_HOST = re.compile(r"(?:[^:\[\]]*|\[[^\[\]]*\])(?::\d*)?")  # with its port


def has_password(text: str) -> bool:
    """Whether an address in the text has a password in it."""
    return any(":" in user for user in _users(text))


def gives_password(text: str) -> bool:
    """Whether an address in the text has a password where clients look for it: before its host.

    `has_password`, which hides, also takes a port and a later @ for a password. That is no reason to refuse an address.
    """
    return any(_logs_in(part) for run in _RUN.finditer(text) for part in _BEGUN.split(run[0])[1:])


def _logs_in(part: str) -> bool:
    """Whether an address has a password, also one that a / ends too early: then its host is none."""
    found = _LOGIN.match(part)
    place, rest = (found[0], part[found.end() :]) if found else ("", part)
    user, mark, _ = place.rpartition("@")
    if mark:
        return ":" in user and user != EXAMPLE
    return "@" in rest and not all(map(_HOST.fullmatch, place.split(",")))


def names_user(text: str) -> bool:
    """Whether an address in the text has a user in it, with or without a password."""
    return any(_users(text))


def redacted(text: str) -> str:
    """The text without the users, passwords and queries of the addresses in it."""
    return _RUN.sub(lambda run: _without_query(_without_users(run[0])), text)


def _users(text: str) -> Iterator[str]:
    """The users before an @ in the addresses of the text."""
    for run in _RUN.finditer(text):
        for part in run[0].split("@")[:-1]:
            found = _user_of(part)
            if found is not None:
                yield part[found.end() :]


def _user_of(part: str) -> re.Match[str] | None:
    """The mark before the user in the text before an @: a user with a password, or one alone after a scheme."""
    at = part.rfind("://")
    mark = _MARK.match(part, at) if at >= 0 else _MARK.search(part)
    if mark is None:
        return None
    user = part[mark.end() :]
    if user == EXAMPLE:
        return None
    return mark if ":" in user or (user and "/" not in user and _takes_none(part, mark)) else None


def _takes_none(part: str, mark: re.Match[str]) -> bool:
    """Whether the mark follows a scheme whose addresses have no name before the host."""
    scheme = _SCHEME.search(part[max(0, mark.start() - _LONGEST_SCHEME) : mark.start()])
    return mark[0][0] == ":" and scheme is not None and scheme[0].lower() not in WITH_USER


def _without_users(run: str) -> str:
    """The text without users. A password may contain @: it ends at the last one before the next slash."""
    *parts, rest = run.split("@")
    told: list[str] = []
    hiding = False
    for part in parts:
        goes_on, mark = hiding and "/" not in part, _user_of(part)
        hiding = goes_on or mark is not None
        if not goes_on:
            told.append(part if mark is None else f"{part[: mark.start()]}{'://' if mark[0][0] == ':' else '//'}***")
    return "@".join([*told, rest])


def _without_query(run: str) -> str:
    begun = run.find(":/")
    mark = _MORE.search(run, begun) if begun >= 0 else None
    return run if mark is None or mark.end() == len(run) else f"{run[: mark.end()]}***"
