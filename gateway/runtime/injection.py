"""Delays that are asked for, to see what the gateway makes of them (``framegate serve --fault-injection``)."""

from __future__ import annotations

from collections.abc import Mapping

#: The request parameter that the embedded backends sleep for, if their Triton was started to take it.
DELAY_PARAMETER = "framegate_delay_ms"


class DelayInjection:
    """Which of the next jobs are to be delayed: the last word counts, for each model or for all."""

    def __init__(self) -> None:
        self._left: dict[str | None, tuple[int, int]] = {}

    def ask(self, jobs: int, delay_ms: int, model: str | None = None) -> None:
        """Delay the next `jobs` jobs of `model`, or of any that is not named in a call of its own; 0 takes it back."""
        self._left[model] = (jobs, delay_ms)

    def take(self, model: str) -> Mapping[str, int]:
        """Return the request parameters of a job of `model` that starts now."""
        for key in (model, None):
            jobs, delay_ms = self._left.get(key, (0, 0))
            if jobs:
                self._left[key] = (jobs - 1, delay_ms)
                return {DELAY_PARAMETER: delay_ms}
        return {}
