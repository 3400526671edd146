"""The Triton that a profile is measured in: one that runs already, or one of our own."""

from __future__ import annotations

import asyncio
import dataclasses
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import uvloop

from gateway.paths import find_repository
from gateway.settings import Settings
from gateway.triton.embedded import EmbeddedTriton
from profiler.device import device_name
from profiler.plan import Plan, Report

_MIB = 1 << 20


def settings_of(
    triton: str | None, model_repository: Path | None, triton_log: Path | None, arena_mb: int | None
) -> Settings:
    """Return the settings, with the repository found. Raises ValidationError."""
    overrides: dict[str, Any] = {"triton": {"url": triton}} if triton else {}
    if arena_mb is not None:
        overrides["arena"] = {"bytes": arena_mb * _MIB}
    options = {"model_repository": model_repository, "log_file": triton_log}
    overrides["embedded"] = {name: value for name, value in options.items() if value is not None}
    settings = Settings(**overrides)
    group = settings.embedded
    found = group.model_copy(update={"model_repository": find_repository(group.model_repository)})
    return settings.model_copy(update={"embedded": found})


def measure_in(
    measuring: Callable[..., Coroutine[Any, Any, Report]], plan: Plan, settings: Settings, *, embedded: bool
) -> Report:
    """Measure in a Triton of our own, or in that of `settings`.

    Raises:
        KeyboardInterrupt: On Ctrl-C and SIGTERM, when all that was started has ended.
    """

    def run(plan: Plan, settings: Settings) -> Report:
        async def main() -> Report:
            task = asyncio.create_task(measuring(plan, settings, device_name()))
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
            return await task

        try:
            report: Report = uvloop.run(main())
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        return report

    if not embedded:
        return run(plan, settings)
    options = settings.embedded
    server = EmbeddedTriton(
        options.model_repository,
        options.log_file,
        intra_op_threads=options.intra_op_threads,
        ready_timeout_s=options.start_timeout_s,
    )
    with server:
        group = settings.triton.model_copy(update=server.addresses)
        plan = dataclasses.replace(plan, server_pid=server.pid)
        return run(plan, settings.model_copy(update={"triton": group}))
