"""A stream whose gateway was restarted: registered again as soon as there is a gateway that takes it.

::

    404 or 410 ──> has somebody closed it at a gateway that runs on? ──> yes: that is meant, the camera ends
                                      │ no: the gateway was restarted, or took the camera for gone
                                      └──> register, with growing pauses, until admitted, refused or out of time
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator

from gateway import errors
from gateway.client.client import FramegateClient
from gateway.client.pacing import NS_PER_S
from gateway.client.problems import GatewayUnreachable, ProblemError
from gateway.client.types import StreamHandle

#: A gateway that comes up is there after two to five seconds; pauses double from the first to the longest.
FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 5.0
#: After one of these the stream may have gone with a gateway that was restarted.
GONE_CODES = frozenset({errors.StreamClosed.code, errors.StreamNotFound.code})
#: A gateway that has just come up answers these while its Triton loads; they pass.
_PASSING_CODES = frozenset({errors.ModelNotLoaded.code})
_SERVER_ERROR, _TOO_MANY = 500, 429


async def register_again(
    client: FramegateClient,
    stream: StreamHandle,
    register: Callable[[], Awaitable[StreamHandle]],
    *,
    until_ns: int | None,
    say: Callable[[str], None],
    now_ns: Callable[[], int] = time.monotonic_ns,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> StreamHandle | None:
    """Return a new stream in place of `stream`, which the gateway does not take frames for any more.

    Args:
        client: Of the gateway.
        stream: The one that is gone.
        register: Asks for a stream like it.
        until_ns: When the camera's time is over, on the clock of `now_ns`; None: never.
        say: Told each new reason why it takes longer.
        now_ns: The monotonic clock; for tests.
        sleep: Waits a number of seconds on it; for tests.

    Returns:
        The new stream; None when somebody closed the old one, or time is over.

    Raises:
        ProblemError: The gateway refuses it for a reason that will not pass; `NotSchedulable` with evidence.
    """
    said = ""
    for pause_s in _pauses():
        try:
            if await _closed_by_somebody(client, stream):
                return None
            return await register()
        except GatewayUnreachable as error:
            reason = str(error)
        except ProblemError as error:
            if not _passes(error):
                raise
            reason = str(error)
        if reason != said:
            say(f"not registered again yet: {reason}")
            said = reason
        if until_ns is not None and now_ns() + round(pause_s * NS_PER_S) >= until_ns:
            return None
        await sleep(pause_s)
    raise AssertionError("the pauses never end")


async def _closed_by_somebody(client: FramegateClient, stream: StreamHandle) -> bool:
    """Whether the gateway knows the stream and runs on: one that stops also closes streams, but is not ready.

    A stream that was closed as idle was closed by nobody.
    """
    try:
        if (await client.stream(stream)).raw.get("close_reason") == "idle":
            return False
    except ProblemError as error:
        if error.code == errors.StreamNotFound.code:
            return False
        if error.code != errors.StreamClosed.code:
            raise
    if await client.ready():
        return True
    raise GatewayUnreachable("the gateway is stopping")


def _passes(error: ProblemError) -> bool:
    return error.status >= _SERVER_ERROR or error.status == _TOO_MANY or error.code in _PASSING_CODES


def _pauses() -> Iterator[float]:
    pause_s = FIRST_PAUSE_S
    while True:
        yield pause_s
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
