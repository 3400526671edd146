"""Whether any stream could be registered now, by the same checks that a registration has to pass."""

from __future__ import annotations

from gateway.core.profile import Profile
from gateway.core.types import NS_PER_S, StreamSpec
from gateway.errors import FramegateError
from gateway.runtime.inference import Inference
from gateway.runtime.models import Catalogue

#: Models named in one reason; more help nobody.
_NAMED = 5


def fitted(spec: StreamSpec, catalogue: Catalogue, inference: Inference, profile: Profile) -> StreamSpec:
    """Return `spec` with its version filled in, once it is sure that its frames could be carried.

    Raises:
        UnknownModel, ModelNotLoaded, ShapeMismatch, DtypeMismatch, NotProfiled, ArenaTooSmall, BodyTooLarge: The
            stream does not fit the model, or one batch of it the memory or the message.
    """
    spec = catalogue.resolve(spec, profile)
    category = spec.category()
    batch = profile.max_batch(category) if profile.has(category) else 1
    inference.check_carries(category, batch)
    return spec


def why_nothing_is_served(catalogue: Catalogue, inference: Inference, profile: Profile) -> str:
    """Return why no profiled category can be served, model by model; empty as soon as one can."""
    reasons: dict[str, str] = {}
    for entry in profile.entries:
        spec = StreamSpec(entry.model, entry.version, entry.shape, NS_PER_S, NS_PER_S, dtype=entry.dtype)
        try:
            fitted(spec, catalogue, inference, profile)
        except FramegateError as error:
            reasons.setdefault(entry.model, error.detail)
        else:
            return ""
    named = [f"{model}: {reason}" for model, reason in list(reasons.items())[:_NAMED]]
    return " ".join(named) or "The profile has no entries."
