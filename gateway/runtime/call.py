"""What is asked for by a call that belongs to no camera, and what comes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gateway.runtime.results import FrameResult, Registration
from gateway.triton.types import Tensor


class CallRefused(Exception):
    """A call with a deadline was not admitted.

    Attributes:
        code: That it was refused, in a word.
        answer: The evidence.
    """

    code = "not_admitted"

    def __init__(self, answer: Registration) -> None:
        super().__init__(answer.verdict.reason)
        self.answer = answer


@dataclass(slots=True)
class Call:
    """What is asked for.

    Attributes:
        inputs: Let go as soon as their bytes are elsewhere: a call that waits holds nothing twice.
        version: Empty: the newest that is served.
        outputs: Names of those that are wanted; empty: all.
        deadline_ns: Real time: relative to its admission; None: best effort.
        timeout_ns: Best effort: relative to its arrival; None: `best_effort.timeout_ms`.
        parameters: For the model's backend.
    """

    model: str
    version: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[str, ...]
    deadline_ns: int | None
    timeout_ns: int | None
    parameters: Mapping[str, bool | int | float | str]


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of it.

    Attributes:
        version: The version that ran.
        results: Of its rows; of an opaque call there is one.
    """

    version: str
    outputs: tuple[Tensor, ...]
    results: Sequence[FrameResult]
