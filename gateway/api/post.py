"""Calls that are answered by bare ASGI, before FastAPI sees them.

The framework's own routing and handling cost about as much as everything that the gateway does for a frame of 150 kB.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import ClassVar

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.api.limits import UNREAD, refuse
from gateway.api.problems import problem_response
from gateway.api.state import ApiState
from gateway.errors import FramegateError, MethodNotAllowed


class PostCalls(ABC):
    """ASGI middleware that answers the POSTs to some paths, and passes on everything else.

    Attributes:
        pattern: Of the paths.
    """

    pattern: ClassVar[re.Pattern[str]]

    def __init__(self, app: ASGIApp, state: ApiState) -> None:
        self._app = app
        self._state = state
        self._gateway = state.gateway
        self._limits = state.settings.limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the call, if it is ours."""
        found = self.pattern.fullmatch(scope["path"]) if scope["type"] == "http" else None
        if found is None:
            await self._app(scope, receive, send)
            return
        scope["endpoint"] = self  # for `CountAnswers`, as a router would
        limit_bytes, path = self._limits.max_body_bytes, scope["path"]
        try:
            if scope["method"] != "POST":
                raise MethodNotAllowed(f"{scope['method']} is not allowed here; POST is.")
            await self._post(found, scope, receive, send)
        except MethodNotAllowed as error:
            await refuse(error, limit_bytes, receive, send, {"Allow": "POST"}, path=path)
        except UNREAD as error:
            await refuse(error, limit_bytes, receive, send, path=path)
        except FramegateError as error:
            await problem_response(error, path=path)(scope, receive, send)

    @abstractmethod
    async def _post(self, found: re.Match[str], scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a call to the path that was found, or raise what answers it."""
