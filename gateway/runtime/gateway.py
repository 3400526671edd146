"""The gateway as its users see it: streams are registered, frames submitted, results fetched.

Put together here: the engine on the clock (`driver`), frames in memory (`arena`), Triton (`executor`, kept
usable by `supervisor`), what comes of frames (`delivery`). All of it lives on one event loop, which owns
everything without a lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from gateway.clock import Clock, MonotonicClock
from gateway.core.engine import Engine
from gateway.core.events import CloseStream, FrameCancelled
from gateway.core.profile import Profile
from gateway.core.types import NS_PER_S, StreamSpec
from gateway.core.view import ModelView
from gateway.errors import StreamNotFound
from gateway.runtime.bodies import Data
from gateway.runtime.call import Answer, Call
from gateway.runtime.calls import Calls
from gateway.runtime.driver import Observer
from gateway.runtime.figures import Figures
from gateway.runtime.hidden import HiddenStreams
from gateway.runtime.holds import Holds
from gateway.runtime.idle import IdleWatch
from gateway.runtime.model_commands import ModelCommands
from gateway.runtime.model_facts import ModelFacts
from gateway.runtime.model_states import ModelStates
from gateway.runtime.parts import Parts
from gateway.runtime.registration import Registrations
from gateway.runtime.results import (
    CLOSED_AS_IDLE,
    CLOSED_ON_DEMAND,
    FrameResult,
    Registration,
    StreamRecord,
)
from gateway.runtime.submission import Submission
from gateway.runtime.tickets import FrameTicket
from gateway.runtime.versions import StreamVersion
from gateway.settings import Settings

_MS_PER_S = 1_000


class Gateway(Figures):
    """One gateway in front of one Triton.

    Args:
        settings: All configuration.
        profile: Execution times on this device.
        clock: Time; `MonotonicClock` unless given.
        observers: Told of every event and its actions.

    Attributes:
        profile: As given.
        model_facts: What Triton says of its models.
    """

    def __init__(
        self, settings: Settings, profile: Profile, *, clock: Clock | None = None, observers: Sequence[Observer] = ()
    ) -> None:
        super().__init__(Engine(profile, settings.engine_config()), clock or MonotonicClock())
        self.profile = profile
        self._settings = settings
        self._observers = observers
        self._states = ModelStates(self._engine)
        self._holds = Holds(self._condition, self._states, self._clock)
        self._models = ModelCommands(self._condition, self._states, self._clock)
        self._registrations = Registrations(self._condition, self._clock, self._holds, settings.limits.max_streams)
        self._submission = Submission(
            self._condition, self._engine, self._clock, self._refused, settings.best_effort.max_waiting
        )
        self.model_facts = ModelFacts(self._condition, self._holds)
        limit_ns = round(settings.limits.idle_stream_s * NS_PER_S)
        self._idle = IdleWatch(self._clock, limit_ns, self.streams, partial(self._close, reason=CLOSED_AS_IDLE))

    # ------------------------------------------------------------ life

    async def start(self) -> None:
        """Take memory and begin to look for Triton; returns at once.

        Raises:
            ArenaTooSmall: ``/dev/shm`` has no room for the arena.
        """
        parts = Parts(self._settings, self.profile)
        parts.start(self._engine, self._clock, self._observers, self._states)
        self._condition.started = parts
        self._calls = Calls(
            parts,
            self.profile,
            self._settings,
            hidden=HiddenStreams(self._clock, parts.driver.post, parts.delivery, self.profile, self._settings),
            holds=self._holds,
            submit=lambda stream_id, body, deadline_ns: self.submit(stream_id, body, deadline_ns=deadline_ns),
            permit=self._registrations.permit,
            refused=self._refused,
            may_block_ns=self._engine.may_block_ns,
        )
        self._idle.start()

    async def stop(self) -> None:
        """End in bounded time: every accepted frame gets its outcome, and nothing of ours stays behind."""
        parts = self._condition.started
        if parts is None or self._condition.stopping:
            return
        self._condition.stopping = True
        self._idle.stop()
        for ticket in list(parts.delivery.tickets.values()):
            self.cancel(ticket)  # the running job's frames are not waiting any more: they go on
        for stream_id in list(parts.delivery.streams):
            parts.driver.post(CloseStream(stream_id))
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.server.shutdown_grace_s):
                await parts.executor.idle()
        await parts.close()

    # ------------------------------------------------------------ models

    async def load_model(self, name: str) -> ModelView:
        """Have a model in memory, or what is new of it if it is there; return how it stands once that has ended.

        Further calls meanwhile wait for the same load. A model that was unloaded by command may be used again.
        One that takes turns and was unloaded by command has its turns again, and this returns at once.

        Raises:
            UnknownModel, TritonUnavailable, Stopping, EngineFailed: It cannot be tried.
            ModelTakesTurns: It is loaded in its turn, and not by command.
            NoRoomForModel, ModelLoadFailed, ModelNotLoaded: It came to nothing; the last: it was unloaded meanwhile.
        """
        return await self._models.load(name)

    async def unload_model(self, name: str, *, force: bool = False) -> ModelView:
        """Have a model out of memory, and kept out until `load_model`; return how it stands once it is gone.

        A job of it that runs ends first; its waiting frames fail. `force`: even though streams or a pin need it.

        Raises:
            UnknownModel, TritonUnavailable, Stopping, EngineFailed: It cannot be tried.
            ModelPinned, CommandOvertaken, ModelNotUnloaded: It is still there; the last: Triton does not let it go.
        """
        return await self._models.unload(name, force=force)

    async def pin_model(self, name: str, *, pinned: bool = True) -> ModelView:
        """Let a model stay in memory from now on, or (`pinned` false) go when others need the room; return at once.

        One that is absent is loaded as soon as it fits.

        Raises:
            UnknownModel, TritonUnavailable, Stopping, EngineFailed: It cannot be tried.
            NoRoomForModel, ModelNotLoaded: Nothing was changed.
        """
        return await self._models.pin(name, pinned=pinned)

    def model_views(self) -> list[ModelView]:
        """Return how every model of the repository stands, in order of name; empty before Triton has answered."""
        return self._models.views()

    # ------------------------------------------------------------ streams

    async def register(self, spec: StreamSpec) -> Registration:
        """Admit a stream, or say why not. An empty `spec.version` means the newest that is served.

        Registrations that come together are decided one after another. Cancelled while it waits for its turn or for
        the test, it leaves nothing behind.

        Raises:
            TritonUnavailable, Stopping, EngineFailed, TooManyStreams, AdmissionBusy: Nothing can be promised now.
            UnknownModel, ModelNotLoaded, ShapeMismatch, DtypeMismatch, NotProfiled, ArenaTooSmall,
            BodyTooLarge: The stream does not fit the model, or one batch of it the memory or the message.
            NoRoomForModel, ModelLoadFailed: Its model was away and could not be had.
        """
        return await self._registrations.register(spec)

    async def check(self, spec: StreamSpec) -> Registration:
        """Answer as `register` would now; nothing is admitted. Raises as `register`."""
        return await self._registrations.check(spec)

    def streams(self) -> list[StreamRecord]:
        """Return the streams that are not over, in order of admission."""
        return [record for record in self._parts.delivery.streams.values() if not record.spec.internal]

    def stream(self, stream_id: str) -> StreamRecord:
        """Return a stream's record; also for a while after its end. Raises `StreamNotFound`."""
        record = self._parts.delivery.find(stream_id)
        if record.spec.internal:
            raise StreamNotFound(f"There is no stream {stream_id!r}.", stream_id=stream_id)
        return record

    def takes_turns(self, model: str) -> bool:
        """Whether a model takes turns in memory with others; else, if real-time streams need it, it stays."""
        return self._engine.takes_turns(model)

    def suspect(self, stream_id: str) -> bool:
        """Whether frames of a stream go alone and without a promise, because Triton refused some."""
        return self._engine.suspect(stream_id)

    def stream_version(self, record: StreamRecord) -> StreamVersion:
        """Return which version of its model a stream runs on, and whether that is the one that was tested."""
        return self._parts.versions.stream_version(record)

    def model_note(self, model: str) -> str:
        """Return what is to be said of the version of a model that is served, if it is not profiled; else nothing."""
        return self._parts.versions.note(model)

    async def close_stream(self, stream_id: str) -> StreamRecord:
        """Take no more frames of this stream; those that wait are served. Raises `StreamNotFound`."""
        record = self.stream(stream_id)
        self._close(record, CLOSED_ON_DEMAND)
        return record

    def _close(self, record: StreamRecord, reason: str) -> None:
        if record.state == "active":
            record.state, record.close_reason = "closing", reason
            self._parts.driver.post(CloseStream(record.stream_id))

    # ------------------------------------------------------------ frames

    def submit(
        self,
        stream_id: str,
        body: Data,
        timestamp_ms: float | None = None,
        deadline_ns: int | None = None,
    ) -> list[FrameTicket]:
        """Take one or more frames, back to back in `body`: all of them or none. `body` may be reused afterwards.

        `body` is one buffer, or the pieces in which it came, wherever they are cut. Each byte is copied once, to where
        Triton reads it.

        `deadline_ns` is their relative deadline where it is not the stream's, of best effort alone.
        `timestamp_ms` is the sender's own. It comes back with the results, and nothing depends on it.

        Raises:
            StreamNotFound, StreamClosed, StreamFinished, FrameSizeMismatch, FrameSurplus, BestEffortFull, ArenaFull,
            Stopping, EngineFailed: Nothing was taken; counted in `totals` by reason.
        """
        return self._submission.submit(stream_id, body, timestamp_ms, deadline_ns)

    def cancel(self, ticket: FrameTicket) -> None:
        """Nobody waits for this frame any more. Without effect once its job has started or it has ended."""
        self._parts.driver.post(FrameCancelled(ticket.stream_id, ticket.seq))

    async def infer(self, call: Call) -> Answer:
        """Run a call that belongs to no camera. Raises as `Calls.infer`, and `TritonUnavailable`."""
        self._condition.require_triton()
        return await self._calls.infer(call)

    async def results(self, stream_id: str, after: int, timeout_ms: float) -> list[FrameResult]:
        """Return the kept results with ``seq > after``, in order; wait up to `timeout_ms` while there are none.

        A result is shown once all older frames of the stream have ended. Raises `StreamNotFound`.
        """
        record = self.stream(stream_id)
        deadline_s = asyncio.get_running_loop().time() + timeout_ms / _MS_PER_S
        while not (found := record.ring.after(after)) and not record.ended:
            left_s = deadline_s - asyncio.get_running_loop().time()
            if left_s <= 0:
                break
            await record.ring.wait(left_s)
        return found

    def delay_jobs(self, jobs: int, delay_ms: int, model: str | None = None) -> None:
        """Ask the backend to delay the next `jobs` jobs: of `model`, or of all that are not named by themselves."""
        self._parts.executor.injection.ask(jobs, delay_ms, model)
