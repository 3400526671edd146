"""Jobs that go to Triton without a task: what a camera's job is, once its model is warm.

A task for each job, with what it awaits, costs about as much as the call itself. Here the request is written at once,
and the answer comes back by plain calls, from the connection to the executor. It is for jobs whose frames lie in shared
memory as they are to run, and whose outputs come in the answer; `gateway.runtime.inference` does all others.

What a job's request says depends on its category, its size and whether it names a version, so it is prepared once for
each, and again when the model was loaded anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from gateway.core.types import Category, Job
from gateway.errors import FramegateError
from gateway.runtime.call_turns import CallTurns
from gateway.runtime.models import Catalogue, check_takes
from gateway.runtime.output_rooms import OutputRooms
from gateway.runtime.warmth import Warmth
from gateway.triton.client import TritonClient
from gateway.triton.types import BackendError, InferenceCall, InSharedMemory, ModelMetadata, Outputs

#: Forgotten together beyond that; there are as many as batches that may be formed.
_MOST_PREPARED = 4096

#: Called with the outputs of a job, or with what went wrong: `BackendError`, or `CancelledError`.
Done = Callable[[Outputs | BaseException], None]


class Call(Protocol):
    """One call that is under way."""

    def cancel(self) -> None:
        """Wait no more: whoever waits is told `CancelledError`, now."""


class DirectCalls:
    """See the module's docstring.

    Args:
        client: Of Triton.
        catalogue: Says what is served.
        turns: Of jobs and warm-ups.
        warmth: Told what has run.
        rooms: Say which outputs come elsewhere.
    """

    def __init__(
        self, client: TritonClient, catalogue: Catalogue, turns: CallTurns, warmth: Warmth, rooms: OutputRooms
    ) -> None:
        self._client = client
        self._catalogue = catalogue
        self._turns = turns
        self._warmth = warmth
        self._rooms = rooms
        self._prepared: dict[tuple[int, int, bool], _Prepared] = {}

    def begin(self, job: Job, place: InSharedMemory, *, named: bool, done: Done) -> Call | None:
        """Begin a job, whose frames lie in `place`; None where it cannot be done here. See `Inference.begin`.

        `named`: It is run as the version that its category names.
        """
        prepared = self._find(job, place, named=named)
        if prepared is None or prepared.call is None or not self._turns.take_now():
            return None
        under_way = _UnderWay(prepared, self._turns, self._warmth, done)
        call = self._client.begin(prepared.call, place.offset, under_way.ended)
        if call is None:
            self._turns.leave()
        return call

    def _find(self, job: Job, place: InSharedMemory, *, named: bool) -> _Prepared | None:
        """Return the prepared call; None if the job has to go another way, also to be refused there."""
        if not self._client.over_http:
            return None
        category, frames = job.category, len(job.frames)
        try:
            model = self._catalogue.current(category.model, category.version)
        except FramegateError:
            return None
        key = (id(category), frames, named)  # hashing a category takes longer than all else here
        known = self._prepared.get(key)
        if known is None or known.model is not model:
            if len(self._prepared) >= _MOST_PREPARED:
                self._prepared.clear()
            known = self._prepared[key] = self._prepare(model, job, place, named=named)
        return known

    def _prepare(self, model: ModelMetadata, job: Job, place: InSharedMemory, *, named: bool) -> _Prepared:
        category, frames = job.category, len(job.frames)
        none = _Prepared(category, model, frames, None)
        try:
            check_takes(model, category)
        except FramegateError:
            return none
        if model.max_batch_size == 0 or self._rooms.wanted(model, frames):
            return none
        call = InferenceCall(
            model=category.model,
            version=category.version if named else "",
            input_name=model.inputs[0].name,
            datatype=category.dtype,
            shape=(frames, *category.shape),
            data=place,
        )
        return _Prepared(category, model, frames, self._client.prepare(call))


class _Prepared:
    """What is known of jobs of one category and size; `call` is None if they go another way."""

    __slots__ = ("call", "category", "frames", "model", "ran")

    def __init__(self, category: Category, model: ModelMetadata, frames: int, call: bytes | None) -> None:
        self.category = category  # as long as this is here, no other category has its id
        self.model = model
        self.frames = frames
        self.call = call
        self.ran = category  # as the version that ran last


class _UnderWay:
    """One job in Triton's hands."""

    __slots__ = ("_done", "_prepared", "_turns", "_warmth")

    def __init__(self, prepared: _Prepared, turns: CallTurns, warmth: Warmth, done: Done) -> None:
        self._prepared = prepared
        self._turns = turns
        self._warmth = warmth
        self._done = done

    def ended(self, answer: Outputs | BaseException) -> None:
        """Triton has answered, or does not any more."""
        self._turns.leave()
        if isinstance(answer, Outputs):
            try:
                answer = self._checked(answer)
            except Exception as error:  # noqa: BLE001 - whatever it is, the job has to end
                answer = BackendError(f"the answer cannot be used: {error!r}")
        self._done(answer)

    def _checked(self, outputs: Outputs) -> Outputs | BackendError:
        prepared, frames = self._prepared, self._prepared.frames
        if prepared.ran.version != outputs.version:
            prepared.ran = replace(prepared.category, version=outputs.version)
        outputs.first = not self._warmth.knows(prepared.ran, frames)
        if outputs.first:
            self._warmth.note(prepared.ran, frames)
        return uneven(outputs, frames) or outputs


def uneven(outputs: Outputs, frames: int) -> BackendError | None:
    """Return what is wrong with outputs that have not one row for each frame."""
    for name, array in outputs.items():
        if array.ndim == 0 or array.shape[0] != frames:
            return BackendError(f"output {name} has shape {list(array.shape)} for a batch of {frames} frames")
    return None
