"""Which models Triton never executes at once: behind the running job of one, a job of another may wait in Triton.

Its rate limiter keeps instances apart that ask for the same resource, of which there is as much as the model asks for
that wants most of it (`--rate-limit=execution_count`). So models whose instances all ask for 1 of a resource that is
shared by all devices execute one at a time, if no model asks for more. Whether the rate limiter is on at all cannot be
seen from outside; that is a setting (`triton.rate_limited`), and known of the embedded Triton.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from gateway.core.events import Event, SerialModels
from gateway.runtime.models import Catalogue
from gateway.triton.types import ModelMetadata

_NONE: frozenset[str] = frozenset()


def serial_models(models: Iterable[ModelMetadata]) -> frozenset[str]:
    """Return the largest group of models that never execute at once; none, if a resource of theirs is ambiguous."""
    models = list(models)
    greedy = {name for model in models for name, count in model.resources if count != 1}
    resource = {(model.name, model.version): _alone(model) for model in models}
    found = Counter(name for name in resource.values() if name and name not in greedy)
    if not found:
        return _NONE
    shared = found.most_common(1)[0][0]
    others = {model for (model, _), name in resource.items() if name != shared}  # a version of theirs is different
    return frozenset(model for model, _ in resource) - others


def _alone(model: ModelMetadata) -> str:
    """The one resource that all instances of a model ask for; empty: there is none."""
    names = {name for name, _ in model.resources}
    return names.pop() if model.serial and len(names) == 1 else ""


class SerialWatch:
    """Tells the engine whenever what is served has changed.

    Args:
        catalogue: Of what is served.
        post: Where the event goes.
        rate_limited: Whether Triton's rate limiter is on.
    """

    def __init__(self, catalogue: Catalogue, post: Callable[[Event], object], *, rate_limited: bool) -> None:
        self._catalogue = catalogue
        self._post = post
        self._rate_limited = rate_limited
        self._said: frozenset[str] | None = None
        catalogue.on_change = self.look
        self.look()

    def look(self) -> None:
        """Look at what is served now."""
        models = serial_models(self._catalogue.all_served) if self._rate_limited else _NONE
        if models != self._said:
            self._said = models
            self._post(SerialModels(models))
