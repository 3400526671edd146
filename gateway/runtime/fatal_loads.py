"""Models whose load ends Triton itself: a version folder named 99999999999999999999 does, and so may a faulty library.

Loaded again whenever Triton is back, such a model would keep everything else from being served for good. So a model
that was being loaded when the connection broke is loaded alone next time, and once that has happened twice, not at all
for a while. A load that succeeds, or a command to load it, clears it.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from gateway.triton.client import TritonClient
from gateway.triton.types import BackendError

log = logging.getLogger(__name__)

#: Once may be chance: somebody restarts Triton just then.
_ENOUGH = 2
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 60.0, 3600.0
#: What gRPC says when there was no Triton to begin with.
_NOBODY = "failed to connect"


@dataclass(slots=True)
class _Case:
    """`times`: how often Triton ended under its load; `until_s`: not loaded before that, on the event loop's clock."""

    times: int = 0
    until_s: float = 0.0


class FatalLoads:
    """See the module's docstring. Every load goes through here.

    Args:
        client: Of Triton.
    """

    def __init__(self, client: TritonClient) -> None:
        self._client = client
        self._cases: dict[str, _Case] = {}

    def suspect(self, model: str) -> bool:
        """Whether a model should be loaded alone."""
        return model in self._cases

    def clear(self, model: str) -> None:
        """Somebody wants it loaded, whatever was before."""
        self._cases.pop(model, None)

    async def load(self, model: str, limit_s: float | None = None) -> None:
        """Load a model, unless its loads have ended Triton. Raises `BackendError`, also after `limit_s`."""
        case = self._cases.get(model)
        left_s = 0.0 if case is None else case.until_s - asyncio.get_running_loop().time()
        if case is not None and left_s > 0:
            raise BackendError(
                f"Triton ended {case.times} times while it was loaded; it is not loaded for another {left_s:.0f} s, "
                "unless by command"
            )
        try:
            await self._client.load(model, limit_s)
        except BackendError as error:
            if not error.unreachable:
                self.clear(model)
            elif _NOBODY not in error.message:
                self._note(model)
            raise
        self.clear(model)

    def _note(self, model: str) -> None:
        case = self._cases.setdefault(model, _Case())
        case.times += 1
        if case.times >= _ENOUGH:
            pause_s = min(_FIRST_PAUSE_S * 2 ** (case.times - _ENOUGH), _LONGEST_PAUSE_S)
            case.until_s = asyncio.get_running_loop().time() + pause_s
        log.warning("Triton ended while it loaded model %s (%d times by now)", model, case.times)
