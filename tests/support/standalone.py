"""A real `airflow standalone` with an admin and a viewer, for tests that look at its UI."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, field

from airflow_env import passwords_file
from local_airflow import USER, LocalAirflow

VIEWER = "viewer"


@dataclass
class Standalone(LocalAirflow):
    """`logins`: the passwords, by user."""

    logins: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.logins = {USER: self.password, VIEWER: secrets.token_urlsafe(9)}
        self._environment["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS"] = f"{USER}:admin,{VIEWER}:viewer"

    def prepare(self) -> None:
        """The folders and the logins; the database is made by `airflow standalone`."""
        for folder in (self.folder, self.home, self.lake):
            folder.mkdir(parents=True, exist_ok=True)
        passwords = passwords_file(self.folder)
        passwords.touch(mode=0o600)
        passwords.write_text(json.dumps(self.logins))

    def start(self) -> None:
        self._popen("standalone", "standalone")
