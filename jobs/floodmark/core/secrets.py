"""Secrets have no place in a rule: what a rule says stands in its ledger, in logs, in arguments and in Airflow's UI.

So a rule may not name what looks like one. No message here repeats what it has found.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlparse

ALLOWED = "FLOODMARK_VARIABLES"  # the operator's list of the variables that rule files may name
WAY_OUT = "give it to Spark or the store by settings of their own; docs/security.md says how"
_WORDS = frozenset(
    """apikey auth authorization cookie credential credentials dsn fernet jwt key keys keytab pass passphrase passwd
    password passwords private pwd pw sas secret secrets token tokens""".split()
)
_NAMED_ALL_THE_SAME = ("PWD", "OLDPWD")
_OF_AIRFLOW = ("AIRFLOW__", "AIRFLOW_CONN_", "AIRFLOW_VAR_")
_INSIDE = re.compile(r"secret|passw(or)?d|passphrase|credential|token|api.?key|access.?key|account.?key", re.IGNORECASE)
_WITH_USER = ("abfs", "abfss", "wasb", "wasbs")  # container@account
# Settings that only say where a secret is kept.
_PLACES = re.compile(r"spark\.kubernetes\.(driver|executor)\.secret(s|KeyRef)\..+|spark\.hadoop\.fs\..+\.provider")
_USER = re.compile(r"//[^/\s@'\"]*:[^\s@'\"]*@")


def secret_variable(name: str, env: Mapping[str, str]) -> str | None:
    """Why a rule file may not name this variable of the environment; None where it may."""
    if ALLOWED in env:
        allowed = [one.strip() for one in env[ALLOWED].split(",") if one.strip()]
        return None if name in allowed else f"the variable {name} is none of {ALLOWED} ({', '.join(allowed) or 'none'})"
    if _looks_secret(name):
        return f"the variable {name} has the name of a secret, which a rule cannot keep: {WAY_OUT}"
    if _USER.search(env.get(name, "")):
        return f"the variable {name} holds an address with a password, which a rule cannot keep: {WAY_OUT}"
    return None


def _looks_secret(name: str) -> bool:
    words = re.split(r"[_\d]+", name.lower())
    return name not in _NAMED_ALL_THE_SAME and (
        name.startswith(_OF_AIRFLOW) or not _WORDS.isdisjoint(words) or bool(_INSIDE.search(name))
    )


def secret_setting(key: str, value: str) -> bool:
    """Whether a Spark setting is a secret, or has one in its text (`-Dfs.s3a.secret.key=...`, an address)."""
    named = not _PLACES.fullmatch(key) and bool(_INSIDE.search(key) or "sas" in key.lower().split("."))
    return named or bool(re.search(rf"({_INSIDE.pattern})[\w.-]*\s*=", value, re.IGNORECASE) or _USER.search(value))


def has_credentials(address: str) -> bool:
    """Whether an address carries more than the place: a user with or without a password, a query, a fragment."""
    if "://" not in address:
        return False
    if _USER.search(address):
        return True
    try:
        parsed = urlparse(address)
    except ValueError:
        return "@" in address
    return bool(parsed.query or parsed.fragment or ("@" in parsed.netloc and parsed.scheme not in _WITH_USER))


def redacted(text: str) -> str:
    """The text without passwords and queries of the addresses in it."""
    return re.sub(r"(://[^\s?'\"]*)\?[^\s'\"]*", r"\1?***", _USER.sub("//***@", text))
