"""Whether any stream could be registered now, by the same checks that a registration has to pass."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.core.profile import Profile
from gateway.core.types import NS_PER_S, StreamSpec
from gateway.errors import FramegateError
from gateway.runtime.inference import Inference
from gateway.runtime.models import Catalogue
from gateway.sizes import in_bytes

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


def never_there(profile: Profile, budget_bytes: int | None) -> dict[str, str]:
    """Return why models of a profile can never be loaded under a budget in bytes, by model, of those that cannot."""
    if budget_bytes is None:
        return {}
    found: dict[str, str] = {}
    for model in {entry.model for entry in profile.entries}:
        weight = profile.weight(model)
        if weight is None:
            found[model] = "its size is not in the profile, and the memory budget is in bytes."
        elif weight > budget_bytes:
            budget = f"the memory budget is {in_bytes(budget_bytes)} (residency.budget_bytes)"
            found[model] = f"it needs {in_bytes(weight)}, and {budget}."
    return found


def why_nothing_is_served(
    catalogue: Catalogue, inference: Inference, profile: Profile, unloadable: Mapping[str, str]
) -> str:
    """Return why no profiled category can be served, model by model; empty as soon as one can.

    `unloadable`: See `never_there`.
    """
    reasons: dict[str, str] = {}
    for entry in profile.entries:
        if entry.model in unloadable:
            reasons[entry.model] = unloadable[entry.model]
            continue
        spec = StreamSpec(entry.model, entry.version, entry.shape, NS_PER_S, NS_PER_S, dtype=entry.dtype)
        if catalogue.loadable(entry.model) and not catalogue.knows(entry.model) and catalogue.lists(entry.model):
            return ""  # it is loaded when it is needed; then it is seen
        try:
            fitted(spec, catalogue, inference, profile)
        except FramegateError as error:
            reasons.setdefault(entry.model, error.detail)
        else:
            return ""
    named = [f"{model}: {reason}" for model, reason in list(reasons.items())[:_NAMED]]
    return " ".join(named) or "The profile has no entries."
