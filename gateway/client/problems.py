"""Problem documents (RFC 9457) as exceptions. `code` is stable and is what programs test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway import errors
from gateway.client.types import CounterOffer, Evidence

#: A stream that was refused for one of these carries evidence.
REFUSALS = frozenset({errors.NotSchedulable.code, errors.DeadlineInfeasible.code, errors.NotProfiled.code})
#: A single frame that ended without a result: answered as an error, but it is that frame's outcome.
FRAME_OUTCOMES = {
    errors.FrameExpired.code: "expired",
    errors.FrameFailed.code: "failed",
    errors.FrameCancelled.code: "cancelled",
    errors.ModelNotLoaded.code: "failed",
    errors.ModelLoadFailed.code: "failed",
    errors.NoRoomForModel.code: "failed",
}


class ProblemError(Exception):
    """The gateway answered with an error.

    Attributes:
        status: HTTP status.
        code: Stable word, for example ``stream_not_found``; ``http_<status>`` if the answer was no problem document.
        title, detail: For people.
        retry_after_s: From the ``Retry-After`` header.
        document: The whole problem document.
    """

    def __init__(self, status: int, document: Mapping[str, Any], retry_after_s: float | None = None) -> None:
        self.status = status
        self.code = str(document.get("code", f"http_{status}"))
        self.title = str(document.get("title", ""))
        self.detail = str(document.get("detail", ""))
        self.retry_after_s = retry_after_s
        self.document = document
        super().__init__(f"{status} {self.code}: {self.detail or self.title}")


class NotSchedulable(ProblemError):
    """The stream was refused: why, and what would be admitted instead.

    Attributes:
        evidence: What the admission test found.
        counter_offers: Changes of one field that would have been admitted at that moment; may be empty.
    """

    def __init__(self, status: int, document: Mapping[str, Any], retry_after_s: float | None = None) -> None:
        super().__init__(status, document, retry_after_s)
        self.evidence = Evidence.from_json({"reason": self.code, **(document.get("evidence") or {})})
        self.counter_offers = tuple(CounterOffer.from_json(offer) for offer in document.get("counter_offers") or ())


class GatewayUnreachable(Exception):
    """No answer: the gateway cannot be reached, or did not answer in time."""


def problem(status: int, document: Mapping[str, Any], retry_after_s: float | None = None) -> ProblemError:
    """Return the exception for a problem document."""
    kind = NotSchedulable if document.get("code") in REFUSALS else ProblemError
    return kind(status, document, retry_after_s)
