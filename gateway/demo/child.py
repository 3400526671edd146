"""The gateway as a child process of the demo that cannot outlive it.

Run as ``python -m gateway.demo.child PARENT_PID ARGUMENTS...``: asks the kernel for SIGTERM when the parent ends,
then becomes ``framegate ARGUMENTS...``.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from gateway.demo.progress import DemoError
from gateway.triton.supervisor import die_with_parent

HOST = "127.0.0.1"
_READY = re.compile(r"^ready at (http://\S+)$", re.MULTILINE)
_FRAMEGATE = "from gateway.cli import app; app(prog_name='framegate')"
#: The gateway answers what is in flight and stops its Triton in less than this.
STOP_S = 20.0


class GatewayProcess:
    """``framegate serve --embedded`` on a free port, in a process group of its own.

    Start it from the main thread: the kernel ties its life to the thread that starts it.

    Args:
        profile: The profile file.
        model_repository: Triton's.
        models: To be loaded.
        directory: Where its logs go: ``gateway.log``, ``triton.log`` and ``decisions.jsonl``.
    """

    def __init__(self, profile: Path, model_repository: Path, models: list[str], directory: Path) -> None:
        self.log = directory / "gateway.log"
        self._environment = {
            "FRAMEGATE_PROFILE": str(profile.resolve()),
            "FRAMEGATE_MODELS": ",".join(models),
            "FRAMEGATE_DECISION_LOG": str((directory / "decisions.jsonl").resolve()),
            "FRAMEGATE_SERVER__HOST": HOST,
            "FRAMEGATE_SERVER__PORT": "0",  # one that was free a moment ago could be taken by its own Triton
            "FRAMEGATE_EMBEDDED__MODEL_REPOSITORY": str(model_repository.resolve()),
            "FRAMEGATE_EMBEDDED__LOG_FILE": str((directory / "triton.log").resolve()),
        }
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str | None:
        """Base URL of the gateway, once frames can be taken; None before."""
        found = _READY.search(self.log.read_text(errors="replace"))
        return None if found is None else found[1]

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it; returns at once."""
        self._process = spawn(["serve", "--embedded"], self._environment, self.log)

    def stop(self) -> None:
        """Stop it, and what it started."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def check(self) -> None:
        """Look whether it still runs.

        Raises:
            DemoError: It ended.
        """
        if not self.running:
            status = "was not started" if self._process is None else f"ended with {self._process.returncode}"
            raise DemoError(f"the gateway {status}; its log is {self.log}")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def spawn(arguments: list[str], environment: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    """Start ``framegate ARGUMENTS...`` with its output in `log`; it ends when this process does."""
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "gateway.demo.child", str(os.getpid()), *arguments]
    with log.open("wb") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            start_new_session=True,
        )


def main() -> None:
    """Become the command line of the arguments, tied to the life of the first one's process."""
    parent, *arguments = sys.argv[1:]
    die_with_parent(signal.SIGTERM, int(parent))
    # the tie outlives exec; the command line itself is above this package
    os.execv(sys.executable, [sys.executable, "-c", _FRAMEGATE, *arguments])


if __name__ == "__main__":
    main()
