"""One ingest process, seen from the scheduler: started, and started again when it ends by itself."""

from __future__ import annotations

import asyncio
import logging
import pickle
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from gateway.ingest import wire
from gateway.ingest.figures import Figures
from gateway.ingest.hub import Hub
from gateway.ingest.scheduler_link import SchedulerLink
from gateway.ingest.staging import Staging
from gateway.settings import Settings

log = logging.getLogger(__name__)

#: Pauses before another start: doubled up to the limit, until one ran for `STEADY_S`.
FIRST_PAUSE_S = 0.1
MAX_PAUSE_S = 5.0
STEADY_S = 10.0
#: One that does not listen by then is ended.
START_S = 60.0
#: One that says nothing for so long stands still: it is ended. It says something five times a second, so that this is
#: long enough for a machine that has far too much to do.
SILENCE_S = 30.0


@dataclass(frozen=True)
class Setup:
    """What an ingest process is told first.

    Attributes:
        settings: Its own: limits of memory are its share.
        number: Which it is.
        addresses: Where it listens: family, and what `bind` takes.
        backend: Path of the scheduler's Unix socket.
        staging_bytes: Size of its staging area.
    """

    settings: Settings
    number: int
    addresses: tuple[tuple[int, tuple[object, ...]], ...]
    backend: str
    staging_bytes: int


class Worker:
    """See the module's docstring.

    Args:
        hub: Of all of them.
        setup: What it is told.

    Attributes:
        figures: Of all processes that there were in this place.
        pid: Of the last one.
    """

    def __init__(self, hub: Hub, setup: Setup) -> None:
        self.figures = Figures()
        self.pid: int | None = None
        self._hub = hub
        self._setup = setup
        self._link: SchedulerLink | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = asyncio.Event()
        self._killed = False
        self._task: asyncio.Task[None] | None = None
        self._listening: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    @property
    def listening(self) -> bool:
        """Whether it takes connections."""
        link = self._link
        return link is not None and link.ready.done() and not link.lost.done()

    async def start(self) -> bool:
        """Start it; return whether it listens. One that ends before is not started again."""
        self._task = asyncio.create_task(self._run(), name=f"ingest process {self._setup.number}")
        self._task.add_done_callback(self._done)
        return await asyncio.shield(self._listening)

    def stop(self) -> None:
        """Start it no more, and tell it to take nothing new."""
        self._stopping.set()
        if self._link is not None:
            self._link.say(wire.plain(wire.DRAIN))

    async def ended(self) -> None:
        """Return when it has ended after `stop`."""
        if self._task is not None:
            await asyncio.wait((self._task,))

    def kill(self) -> None:
        """End it at once. Safe at any time."""
        self._killed = True  # also one that is being started
        self._stopping.set()
        if self._process is not None:
            self._process.kill()

    def _done(self, task: asyncio.Task[None]) -> None:
        """There will be no process any more."""
        if not self._listening.done():
            self._listening.set_result(False)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("ingest process %d is not started any more", self._setup.number, exc_info=error)

    async def _run(self) -> None:
        """Keep one running until `stop`."""
        clock, pause_s = asyncio.get_running_loop().time, FIRST_PAUSE_S
        while not self._stopping.is_set():
            began = clock()
            code = await self._one()
            if self._stopping.is_set() or not self._listening.done():
                return
            pause_s = FIRST_PAUSE_S if clock() - began > STEADY_S else pause_s
            log.error(
                "ingest process %d ended by itself (%s); its connections are lost, and it is started again in %g s",
                self._setup.number,
                f"signal {-code}" if code < 0 else f"status {code}",
                pause_s,
            )
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._stopping.wait()
            pause_s = min(2 * pause_s, MAX_PAUSE_S)

    async def _one(self) -> int:
        """Run one until it has ended; return its exit status, 1 if the system does not let it start."""
        try:
            with ExitStack() as kept:
                staging = Staging.create(self._setup.staging_bytes)
                kept.callback(staging.close)
                ours, theirs = socket.socketpair()
                kept.callback(ours.close)
                with theirs:
                    process = await asyncio.to_thread(_spawn, theirs, staging)
                try:
                    await self._attend(process, ours, staging)
                finally:
                    self._link = None
                    if self._killed or not self._stopping.is_set():  # it may only have closed its connection
                        process.kill()
                    ours.close()  # it ends without us
                    code = await asyncio.to_thread(process.wait)
                return code
        except OSError as error:
            log.error("an ingest process cannot be started: %s", error)
            return 1

    async def _attend(self, process: subprocess.Popen[bytes], ours: socket.socket, staging: Staging) -> None:
        """Tell a new process what it is to do, and return when it is gone."""
        self._process, self.pid = process, process.pid
        self.figures.starts += 1
        if self._killed:
            return
        link = SchedulerLink(self._hub, staging, self.figures)
        await asyncio.get_running_loop().create_unix_connection(lambda: link, sock=ours)
        self._link = link
        link.say(wire.message(bytes((wire.HELLO,)), pickle.dumps(self._setup)))
        if self._stopping.is_set():
            link.say(wire.plain(wire.DRAIN))
        await asyncio.wait((link.ready, link.lost), return_when=asyncio.FIRST_COMPLETED, timeout=START_S)
        if not link.ready.done():
            process.kill()
        elif not self._listening.done():
            self._listening.set_result(True)
        await self._until_lost(link, process)

    async def _until_lost(self, link: SchedulerLink, process: subprocess.Popen[bytes]) -> None:
        """Return when it is gone; end it if it stands still. While it ends, clients may keep it busy: see `kill`."""
        heard = 0
        while not link.lost.done():
            await asyncio.wait((link.lost,), timeout=SILENCE_S)
            if link.heard == heard and not link.lost.done() and not self._stopping.is_set():
                log.error("ingest process %d has said nothing for %g s and is ended", self._setup.number, SILENCE_S)
                process.kill()
            heard = link.heard


def _spawn(channel: socket.socket, staging: Staging) -> subprocess.Popen[bytes]:
    """Start a process that has nothing of ours but its end of the channel and its staging area."""
    fds = (channel.fileno(), staging.fd)
    command = [sys.executable, "-m", "gateway.ingest.process", *map(str, fds)]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=fds)
