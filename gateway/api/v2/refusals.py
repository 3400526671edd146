"""What a call with a deadline is told when it is refused: the verdict, and how it comes to its figures."""

from __future__ import annotations

from gateway.api.admission import HALF, evidence, refusal
from gateway.core.profile import Profile
from gateway.core.types import NS_PER_MS
from gateway.errors import DeadlineInfeasible, FramegateError
from gateway.runtime.results import Registration

_NOT_SEARCHED = "No counter-offers were searched for a call; POST /v1/admission/check does so for what a stream asks."


def call_refusal(answer: Registration, profile: Profile) -> FramegateError:
    """Return the error for a call that was not admitted.

    Args:
        answer: Of the stream that its rows would have been.
        profile: What the test planned with.
    """
    error = refusal(evidence(answer, lambda _: ""), (), answer.spec, profile=profile)
    said = [error.detail]
    if not isinstance(error, DeadlineInfeasible):  # which gives the figures itself
        said += [*[HALF] * (HALF not in error.detail), _figures(answer, profile)]
    error.detail = " ".join([*said, _NOT_SEARCHED])
    return error


def _figures(answer: Registration, profile: Profile) -> str:
    spec = answer.spec
    rows, category = spec.frames or 1, spec.category()
    if not profile.has(category):
        return ""
    alone_ms = profile.split_ns(category, rows) / NS_PER_MS
    takes = "Its row takes" if rows == 1 else f"Its {rows} rows take"
    return (
        f"Half of this call's deadline is {spec.deadline_ns / 2 / NS_PER_MS:g} ms. {takes} {alone_ms:g} ms on an idle "
        f"device, so its deadline has to be at least {2 * alone_ms:g} ms, and more beside other work."
    )
