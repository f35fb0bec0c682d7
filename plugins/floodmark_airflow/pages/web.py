"""The ASGI application that Airflow mounts. Cheap to import, as tasks load plugins, too; pages load at first use."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

from floodmark_airflow import settings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    Message = MutableMapping[str, Any]

# Scripts and styles are our own files, nothing is inline, and only Airflow's own pages may frame ours.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
}


class Web:
    """An ASGI application that adds the headers above to every response, including errors."""

    def __init__(self) -> None:
        self._app: Any = None
        self._one_at_a_time = threading.Lock()

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                known = [(name, value) for name, value in message.get("headers", []) if name.decode() not in HEADERS]
                message["headers"] = known + [(name.encode(), value.encode()) for name, value in HEADERS.items()]
            await send(message)

        made = self._app or await asyncio.to_thread(self.app)  # slow imports: others are served meanwhile
        await made(scope, receive, guarded)

    def app(self) -> Any:
        """The FastAPI application."""
        with self._one_at_a_time:
            if self._app is None:
                self._app = self._made()
            return self._app

    @staticmethod
    def _made() -> Any:
        from floodmark.core.process.loading import forbid
        from floodmark_airflow.pages.routes import application
        from floodmark_airflow.pages.rulefacts import Facts

        forbid("the pages run no rule's code; `floodmark status` shows what is unread")
        return application(Facts(settings.rules_folder(), settings.home_folder))
