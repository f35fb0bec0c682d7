"""Refuses secrets in rules, because a rule's text appears in its ledger, in logs, in arguments and in Airflow's UI.

So a rule may not name anything that looks like a secret. No message here repeats what was found.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from urllib.parse import ParseResult, unquote, urlparse

from floodmark.redaction import WITH_USER, gives_password, has_password, names_user

ALLOWED = "FLOODMARK_VARIABLES"  # the operator's list of the variables that rule files may name
WAY_OUT = "configure it in Spark or in the store instead; see docs/security.md"
_WORDS = frozenset(
    """apikey auth authorization bearer cookie credential credentials creds dbpass dsn fernet jwt key keys keytab pass
    passphrase passwd password passwords pat pgpass private pwd pw sas secret secrets token tokens""".split()
)
_NAMED_ALL_THE_SAME = ("PWD", "OLDPWD")
_OF_AIRFLOW = ("AIRFLOW__", "AIRFLOW_CONN_", "AIRFLOW_VAR_")
_INSIDE = re.compile(r"secret|passw(or)?d|passphrase|credential|token|api.?key|access.?key|account.?key", re.IGNORECASE)
# Keys whose texts are secrets, in the settings of classes: `page_token` and `token_url` are none.
_SURE = re.compile(
    r"([\w.-]+[_.-])?(password|passwd|passphrase|client[_-]?secret|(access|auth|api|bearer|refresh|secret)[_-]?token"
    r"|(api|secret|secret[_-]?access|private)[_-]?key)|secret|token|authorization",
    re.IGNORECASE,
)
# Settings that only name the place of a secret; a provider is a class.
_PLACES = re.compile(r"spark\.kubernetes\.(driver|executor)\.secret(s|KeyRef)\..+")
_PROVIDER = re.compile(r"spark\.hadoop\.fs\..+\.provider")
_CLASSES = re.compile(r"\s*\w+(\.\w+)+(\s*,\s*\w+(\.\w+)+)*\s*", re.ASCII)
# Settings whose value is a key. The name (ARN) of a key in another service is not one.
_KEY = re.compile(r"spark\..*([.-]key|\b(private|encryption|client-provided)\b.*\bkey\b.*)")
_KEPT_ELSEWHERE = re.compile(r"arn:aws[\w-]*:kms:[\w:/-]+")
# Environment variables that a setting passes to the processes it starts.
_ENVIRONMENT = re.compile(r"spark\.(kubernetes\.driverEnv|yarn\.appMasterEnv|executorEnv)\.(.+)")
# All of these are bounded, because texts may be long.
_SHORT = r"(?<![A-Za-z0-9])(?:sig|signature|sas|pass|pwd|pw|jwt)(?![A-Za-z0-9])"
_ASSIGNED = rf"(?:{_INSIDE.pattern}|{_SHORT})[\w.-]{{0,100}}\s{{0,10}}="
_HOLDS = re.compile(_ASSIGNED, re.IGNORECASE)
_QUERY = re.compile(rf"[?&;#][\w.-]{{0,100}}?{_ASSIGNED}", re.IGNORECASE)


def secret_variable(name: str, env: Mapping[str, str]) -> str | None:
    """Why a rule file may not name this environment variable; None if it may."""
    if ALLOWED in env:
        allowed = [one.strip() for one in env[ALLOWED].split(",") if one.strip()]
        return (
            None if name in allowed else (f"the variable {name} is not in {ALLOWED} ({', '.join(allowed) or 'none'})")
        )
    if _looks_secret(name):
        return f"the variable {name} has the name of a secret, which a rule cannot contain: {WAY_OUT}"
    value = env.get(name, "")
    if names_user(value) or _has_user(value) or _QUERY.search(value):
        return f"the variable {name} contains an address with a password, which a rule cannot contain: {WAY_OUT}"
    return None


def _looks_secret(name: str) -> bool:
    words = re.split(r"[_\d]+", name.lower())
    return name not in _NAMED_ALL_THE_SAME and (
        name.startswith(_OF_AIRFLOW) or not _WORDS.isdisjoint(words) or bool(_INSIDE.search(name))
    )


def secret_setting(key: str, value: str) -> bool:
    """Whether a Spark setting is a secret or contains one (`-Dfs.s3a.secret.key=...`, an address)."""
    return _named_secret(key, value) or bool(_HOLDS.search(value)) or names_user(value) or _has_user(value)


def _named_secret(key: str, value: str) -> bool:
    if _PLACES.fullmatch(key) or (_PROVIDER.fullmatch(key) and _CLASSES.fullmatch(value)):
        return False
    given = _ENVIRONMENT.fullmatch(key)
    if given is not None and _looks_secret(given[2]):
        return True
    is_key = _KEY.fullmatch(key) and not _KEPT_ELSEWHERE.fullmatch(value)
    return bool(is_key or _INSIDE.search(key) or "sas" in key.lower().split("."))


def secrets_in(value: object, name: str) -> Iterator[tuple[str, object]]:
    """The texts among the settings of a class that are secrets for sure, each with its name: a password in an address,
    or the value of a key such as `password`. A class may use any other key for anything."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            secret = isinstance(inner, str) and inner and not inner.startswith("arn:") and _SURE.fullmatch(str(key))
            yield from [(f"{name}.{key}", inner)] if secret else secrets_in(inner, f"{name}.{key}")
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from secrets_in(inner, f"{name}[{i}]")
    elif isinstance(value, str) and (gives_password(value) or gives_password(unquote(value))):
        yield name, value


def has_credentials(address: str) -> bool:
    """Whether an address has more than the place: a user with or without a password, a query, a fragment."""
    parsed = _parsed(address)
    return parsed is not None and (_has_user(address) or bool(parsed.query or parsed.fragment))


def _has_user(address: str) -> bool:
    """Whether an address, which may be any text, names a user, even among blanks and quotes."""
    parsed = _parsed(address)
    if parsed is None:
        return False
    password = has_password(address) or has_password(unquote(address))
    return password or ("@" in parsed.netloc and parsed.scheme not in WITH_USER)


def _parsed(address: str) -> ParseResult | None:
    """The parts of an address; None if the text is no address."""
    scheme, mark, rest = address.partition(":/")
    if not mark or not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme):
        return None
    try:
        # Too few or too many slashes must not hide anything.
        return urlparse(address if scheme == "file" else f"{scheme}://{rest.lstrip('/')}")
    except ValueError:  # an invalid host: then all of it counts as host
        return ParseResult(scheme.lower(), rest.lstrip("/"), "", "", "", "")


def may_hold(text: str) -> bool:
    """Whether the text may be or contain a secret; then no message repeats any of it."""
    return bool(_INSIDE.search(text) or _HOLDS.search(text) or re.search(r"[^/\s@'\"]@", text))
