"""One tree of errors; each class carries a stable code and an HTTP status, and one place renders it.

How an error becomes an answer::

    runtime, triton ──raise──> FramegateError(detail, **members)
                                     │
    api route ── lets it pass ───────┤           pydantic, routing, body limit, anything else
                                     │                        │ wrapped or mapped
                                     v                        v
                       api/problems.py: problem_response(error)
                                     │
                                     v
    HTTP <status>, application/problem+json (RFC 9457)
    {"type": "urn:framegate:problem:<code>", "title", "status", "code", "detail", ...members}

`code` is what programs should test; it never changes once published. `title` is the same for every
occurrence; `detail` is for people and says what to do; the members are evidence for programs. Members must be
plain JSON values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar


class FramegateError(Exception):
    """Base of the tree. On its own it stands for a fault of the gateway itself.

    Args:
        detail: One or two sentences on this occurrence. The class's title if empty.
        retry_after_s: Becomes the ``Retry-After`` header, rounded up to whole seconds.
        **members: Extension members of the problem document: the evidence.
    """

    code: ClassVar[str] = "internal"
    status: ClassVar[int] = 500
    title: ClassVar[str] = "Internal error"

    #: Names that the problem document itself uses.
    RESERVED: ClassVar[frozenset[str]] = frozenset({"type", "title", "status", "detail", "code", "instance"})

    def __init__(self, detail: str = "", *, retry_after_s: float | None = None, **members: object) -> None:
        if clash := self.RESERVED.intersection(members):
            raise TypeError(f"members of {type(self).__name__} use reserved names: {sorted(clash)}")
        super().__init__(detail or self.title)
        self.detail = detail or self.title
        self.retry_after_s = retry_after_s
        self.members: Mapping[str, object] = members


# ---------------------------------------------------------------- what was asked for is malformed


class ValidationFailed(FramegateError):
    """A field is missing, unknown, of the wrong type or out of bounds. `errors` lists each one."""

    code = "invalid_request"
    status = 422
    title = "The request is not valid"


class ShapeMismatch(FramegateError):
    """The stream's shape does not fit the model's input."""

    code = "shape_mismatch"
    status = 422
    title = "The shape does not fit the model's input"


class DtypeMismatch(FramegateError):
    """The stream's datatype is not the model's."""

    code = "dtype_mismatch"
    status = 422
    title = "The datatype is not that of the model's input"


class FrameSizeMismatch(FramegateError):
    """A frame body is not a whole number of frames. Members: `expected_bytes`, `received_bytes`."""

    code = "frame_size_mismatch"
    status = 400
    title = "The body is not a whole number of frames"


class BodyTooLarge(FramegateError):
    """The body is over the limit of its route. Member: `limit_bytes`."""

    code = "body_too_large"
    status = 413
    title = "The body is too large"


class UploadTimeout(FramegateError):
    """The body was not complete within `limits.upload_timeout_ms`."""

    code = "upload_timeout"
    status = 408
    title = "The body did not come in time"


class UploadsFull(FramegateError):
    """Bodies that are being read hold `limits.inflight_body_bytes`. Sent with ``Retry-After``."""

    code = "uploads_full"
    status = 503
    title = "Too many bodies are being read"


class HeadTooLarge(FramegateError):
    """The request line and the headers are over the server's limit. Member: `limit_bytes`."""

    code = "head_too_large"
    status = 431
    title = "The headers are too large"


class UpgradeRequired(FramegateError):
    """A WebSocket's address was asked for with a plain call."""

    code = "upgrade_required"
    status = 426
    title = "A WebSocket handshake is needed here"


class UnsupportedMediaType(FramegateError):
    """The body is not of a type that this call reads."""

    code = "unsupported_media_type"
    status = 415
    title = "The body is of the wrong type"


class NotFound(FramegateError):
    """No such path."""

    code = "not_found"
    status = 404
    title = "There is nothing at this path"


class MethodNotAllowed(FramegateError):
    """The path exists, the method does not."""

    code = "method_not_allowed"
    status = 405
    title = "The method is not allowed at this path"


# ---------------------------------------------------------------- models and the profile


class UnknownModel(FramegateError):
    """Triton has no model, or no version of it, of this name."""

    code = "unknown_model"
    status = 404
    title = "There is no such model"


class ModelNotLoaded(FramegateError):
    """The model is in the repository but not in memory."""

    code = "model_not_loaded"
    status = 409
    title = "The model is not loaded"


class ModelPinned(FramegateError):
    """A model has to stay: real-time streams or a pin need it. Member: `pins`."""

    code = "model_pinned"
    status = 409
    title = "The model is needed"


class ModelTakesTurns(FramegateError):
    """A model cannot be loaded by command: it takes turns with others in memory, and is loaded when it has its own."""

    code = "model_takes_turns"
    status = 409
    title = "The model is loaded in its turn"


class NoRoomForModel(FramegateError):
    """A model does not fit into the memory budget beside those that have to stay. Member: `memory`."""

    code = "no_room_for_model"
    status = 409
    title = "There is no room for the model"


class ModelLoadFailed(FramegateError):
    """Triton could not load or warm a model, or not in time; `detail` has its words. Sent with ``Retry-After``."""

    code = "model_load_failed"
    status = 502
    title = "The model could not be loaded"


class ModelNotUnloaded(FramegateError):
    """Triton still lists a model that it was told to unload, after `residency.unload_timeout_s`."""

    code = "model_not_unloaded"
    status = 502
    title = "The model could not be unloaded"


class CommandOvertaken(FramegateError):
    """Before a model was unloaded, a later command had it loaded: the last one decides."""

    code = "command_overtaken"
    status = 409
    title = "A later command decides"


class NotProfiled(FramegateError):
    """Execution times of this model, version, shape and dtype are not known: nothing can be promised."""

    code = "not_profiled"
    status = 409
    title = "The model is not profiled at this shape"


class ProfileMissing(FramegateError):
    """The gateway cannot start without a readable profile."""

    code = "profile_missing"
    status = 500
    title = "There is no usable profile"


# ---------------------------------------------------------------- streams


class StreamNotFound(FramegateError):
    """No stream of this id, or it closed so long ago that it is forgotten."""

    code = "stream_not_found"
    status = 404
    title = "There is no such stream"


class StreamClosed(FramegateError):
    """The stream was closed; it takes no more frames."""

    code = "stream_closed"
    status = 410
    title = "The stream is closed"


class StreamFinished(FramegateError):
    """All frames that the stream announced have come."""

    code = "stream_finished"
    status = 409
    title = "The stream has had all its frames"


class TooManyStreams(FramegateError):
    """`limits.max_streams` are registered."""

    code = "too_many_streams"
    status = 503
    title = "There are too many streams"


class AdmissionBusy(FramegateError):
    """Streams come and go faster than this one could be tested, or too many wait for it. Sent with ``Retry-After``."""

    code = "admission_busy"
    status = 503
    title = "The streams change too fast to decide"


class NotSchedulable(FramegateError):
    """With this stream, some frame would miss. Members: `evidence`, `counter_offers`."""

    code = "not_schedulable"
    status = 409
    title = "The stream cannot be admitted"


class DeadlineInfeasible(FramegateError):
    """The relative deadline is below the time of one frame on an idle device."""

    code = "deadline_infeasible"
    status = 422
    title = "The deadline is shorter than one frame takes"


# ---------------------------------------------------------------- frames


class FrameExpired(FramegateError):
    """The only frame of the request passed its deadline before it could be dispatched."""

    code = "frame_expired"
    status = 504
    title = "The frame's deadline passed before it was dispatched"


class FrameFailed(FramegateError):
    """The only frame of the request failed in Triton."""

    code = "frame_failed"
    status = 502
    title = "The model did not answer for this frame"


class FrameCancelled(FramegateError):
    """The only frame of the request was cancelled: its stream or the gateway ended first."""

    code = "frame_cancelled"
    status = 503
    title = "The frame was cancelled before it was dispatched"


class FrameSurplus(FramegateError):
    """Frames came earlier than their stream's period, burst and jitter allow. Member: `stream_id`."""

    code = "frame_surplus"
    status = 429
    title = "More frames than the stream was admitted for"


class BestEffortFull(FramegateError):
    """So many best-effort frames wait already that another would only grow old."""

    code = "best_effort_full"
    status = 503
    title = "Too many best-effort frames wait"


# ---------------------------------------------------------------- the Open Inference Protocol


class BadInference(FramegateError):
    """A `/v2` call is malformed, or its tensors are not the model's."""

    code = "invalid_inference"
    status = 400
    title = "The inference request is not valid"


class NotSupported(FramegateError):
    """The protocol or one of Triton's extensions has it, the gateway does not; the detail says why."""

    code = "not_supported"
    status = 400
    title = "The gateway does not do this"


# ---------------------------------------------------------------- the gateway and its Triton


class ArenaFull(FramegateError):
    """Every block of the frame arena is in use. Sent with ``Retry-After``."""

    code = "arena_full"
    status = 503
    title = "There is no room for another batch"


class ArenaTooSmall(FramegateError):
    """One batch of this stream is larger than the arena. Members: `needed_bytes`, `arena_bytes`."""

    code = "arena_too_small"
    status = 507
    title = "The frame arena is too small for this stream"


class ArenaNotLocked(FramegateError):
    """`arena.lock` is ``on``, and the system does not allow it; the detail names the limit."""

    code = "arena_not_locked"
    status = 500
    title = "The frame arena cannot be locked into memory"


class TritonUnavailable(FramegateError):
    """Triton cannot be reached, or does not answer in time."""

    code = "triton_unavailable"
    status = 503
    title = "Triton cannot be reached"


class NothingServed(FramegateError):
    """Triton is there, but no profiled model can be used: no stream can be registered."""

    code = "nothing_served"
    status = 503
    title = "No profiled model can be served"


class EngineFailed(FramegateError):
    """A fault of the gateway came out of its engine, whose state cannot be trusted any more. Only a restart helps."""

    code = "engine_failed"
    status = 503
    title = "The engine has failed"


class Stopping(FramegateError):
    """The gateway is shutting down and takes nothing new."""

    code = "stopping"
    status = 503
    title = "The gateway is shutting down"


class ZooError(FramegateError):
    """A model or clip could not be fetched or built; the detail says what to do."""

    code = "zoo"
    status = 500
    title = "A model could not be built"


class AddressUnavailable(FramegateError):
    """The gateway cannot listen where it should; the detail names the option to change."""

    code = "address_unavailable"
    status = 500
    title = "The gateway cannot listen at its address"


class IngestFailed(FramegateError):
    """An ingest process could not be started."""

    code = "ingest_failed"
    status = 500
    title = "An ingest process did not start"


class EmbeddedTritonError(FramegateError):
    """The embedded Triton could not be started; the detail names the next step."""

    code = "embedded_triton"
    status = 500
    title = "The embedded Triton did not start"
