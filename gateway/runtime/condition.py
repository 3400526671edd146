"""Whether a gateway has been started, works, and has its Triton: what everything that is asked of it depends on."""

from __future__ import annotations

from gateway.errors import EngineFailed, FramegateError, NothingServed, Stopping, TritonUnavailable
from gateway.runtime.parts import Parts

#: Triton is looked for about as often.
RETRY_AFTER_S = 1.0


class Condition:
    """See the module's docstring.

    Attributes:
        started: What the gateway consists of; None before its start.
        stopping: It takes nothing any more.
    """

    def __init__(self) -> None:
        self.started: Parts | None = None
        self.stopping = False

    @property
    def parts(self) -> Parts:
        """What the gateway consists of. Raises `Stopping` before its start."""
        if self.started is None:
            raise Stopping("The gateway has not been started.")
        return self.started

    @property
    def broken(self) -> bool:
        """Whether the engine has failed: nothing but a restart of the process helps."""
        return self.started is not None and self.started.driver.broken

    @property
    def triton_ready(self) -> bool:
        """Whether Triton is connected, set up and watched."""
        return self.started is not None and self.started.supervisor.up

    def unready(self) -> FramegateError | None:
        """Return why no stream could be registered now, as the error that says so; None when one could."""
        try:
            self.require_triton()
        except FramegateError as error:
            return error
        reason = self.parts.why_nothing_is_served()
        return NothingServed(reason, retry_after_s=RETRY_AFTER_S) if reason else None

    def check_running(self) -> None:
        """Raise when frames cannot be taken: `Stopping`, `EngineFailed`."""
        if self.stopping:
            raise Stopping()
        if self.parts.driver.broken:
            raise EngineFailed("A fault of the gateway, which its log shows. It has to be restarted.")

    def require_triton(self) -> None:
        """Raise as `check_running`, and `TritonUnavailable`."""
        self.check_running()
        if not self.triton_ready:
            reason = self.parts.supervisor.reason
            raise TritonUnavailable(f"Triton is not ready: {reason}", retry_after_s=RETRY_AFTER_S)
