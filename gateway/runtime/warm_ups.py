"""First executions, of black frames: what has not run since its model was loaded can take a hundred times as long.

While the worker counts as lost the supervisor has all of them run; after a load beside other models, the engine does,
as jobs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from gateway.core.profile import Profile
from gateway.core.types import Category
from gateway.errors import ArenaTooSmall, BodyTooLarge, DtypeMismatch, ShapeMismatch, UnknownModel
from gateway.runtime.inference import Inference
from gateway.runtime.opaque import OPAQUE
from gateway.triton.types import BackendError, ModelMetadata

log = logging.getLogger(__name__)


class WarmUps:
    """See the module's docstring.

    Args:
        inference: Runs them.
        profile: Says how large batches get.

    Attributes:
        on_refused_batch: Told of a category whose batches fail, and how, where single frames do not.
    """

    def __init__(self, inference: Inference, profile: Profile) -> None:
        self.on_refused_batch: Callable[[Category, str], object] = _nobody
        self._inference = inference
        self._profile = profile
        self._single: set[Category] = set()

    async def run(
        self, category: Category, frames: int, timeout_s: float | None = None, model: ModelMetadata | None = None
    ) -> None:
        """Run one batch, unless no such batch will ever come; arguments as of `Inference.warm`.

        One that is refused, although a single frame is not, is no reason not to use the model.

        Raises:
            BackendError: Triton's, or there was no answer in time.
            ModelNotLoaded: Triton was lost meanwhile.
        """
        if category.dtype == OPAQUE or (frames > 1 and category in self._single):
            return
        try:
            if self._profile.has(category):
                self._inference.check_carries(category, self._profile.max_batch(category))
            await self._inference.warm(category, frames, timeout_s, model)
        except (ArenaTooSmall, BodyTooLarge):
            return  # no stream of this category can be registered: `Gateway.register` says why
        except (UnknownModel, ShapeMismatch, DtypeMismatch):
            return  # its version has gone, or takes other frames than are profiled: no stream goes on with it
        except BackendError as error:
            if frames == 1 or error.unreachable or error.timed_out:
                raise
            await self._inference.warm(category, 1, timeout_s, model)
            log.warning("%s is run one frame at a time: a batch of %d failed: %s", category, frames, error.message)
            self._single.add(category)
            self.on_refused_batch(category, error.message)


def _nobody(category: Category, reason: str) -> None:
    pass
