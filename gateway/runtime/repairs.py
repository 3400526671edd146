"""Tells a model that has broken from a frame that it cannot digest, and brings the broken one back.

A model's process can die while Triton goes on and says that the model is ready: each of its jobs fails then, for
good. A job can also fail because of what is in its frames, which is nobody's fault but theirs. So::

    batch refused ── its frames one by one (the engine) ──> frame refused

    frame refused ── probe: black frame, smallest shape ──┬─> answered: it is the frame
                                                          └─> refused too: failed ── unload, load, warm ──> served
                                                                              └─ growing pauses ─┘

The probe is part of the job that failed: the engine has not been told of its end yet, so nothing else is begun. A job
that was sent ahead of that end runs first, and the probe's time begins when it is over. Frames of a failed model fail
at once, with the reason; other models go on. A wanted model that somebody unloads is taken care of likewise.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass

from gateway.core.events import Event, ModelLoaded, ModelLoadFailed
from gateway.core.profile import Profile
from gateway.core.types import NS_PER_S, Category
from gateway.errors import FramegateError
from gateway.runtime.inference import Inference
from gateway.runtime.loading import ModelLoader
from gateway.runtime.models import Catalogue
from gateway.triton.types import BackendError

log = logging.getLogger(__name__)

#: A model whose jobs go on failing though it answers probes is probed and logged no more often than this.
_PROBE_PAUSE_S = 1.0
#: After this long, the same reason is logged again.
_REMIND_S = 60.0
#: A probe may take this long, or ten times the profiled time of its frame if that is longer. Triton 2.51 takes 1 s to
#: find that a Python model's process is dead.
_PROBE_LIMIT_S = 2.0
_PROBE_LIMIT_FACTOR = 10
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0


@dataclass(slots=True)
class _Case:
    """A model whose jobs have failed. Times are the event loop's.

    Attributes:
        failures: Jobs since the last line in the log.
        said, said_s: The last reason in the log, and when.
        probed_s: When it was last probed.
        broken: Why it has to be reloaded; empty while it answers probes.
        due_s, pause_s: When the next reload is due, and the pause after it.
    """

    failures: int = 0
    said: str = ""
    said_s: float = -math.inf
    probed_s: float = -math.inf
    broken: str = ""
    due_s: float = 0.0
    pause_s: float = _FIRST_PAUSE_S


class Repairs:
    """The cases of one worker's models.

    Args:
        on_broken: Called when Triton should be looked at, and `repair` called, soon.

    Attributes:
        hand_over: Takes broken models with the reason, where the engine has models loaded; else `repair` does.
        tell: Takes what the engine is to know of the models that `repair` takes care of.
        concerns: Says whether a model is still to be there, and nobody else is loading or unloading it.
    """

    def __init__(
        self,
        inference: Inference,
        catalogue: Catalogue,
        loader: ModelLoader,
        profile: Profile,
        on_broken: Callable[[], object],
    ) -> None:
        self.hand_over: Callable[[str, str], object] | None = None
        self.tell: Callable[[Event], object] = lambda event: None
        self.concerns: Callable[[str], bool] = lambda model: True
        self._inference = inference
        self._catalogue = catalogue
        self._loader = loader
        self._profile = profile
        self._on_broken = on_broken
        self._cases: dict[str, _Case] = {}

    async def examine(self, category: Category, reason: str) -> bool:
        """A job of `category` was refused with `reason`: probe its model, unless that was done just now.

        Returns:
            Whether the model works, as far as is known.
        """
        case = self._cases.setdefault(category.model, _Case())
        now_s = asyncio.get_running_loop().time()
        _say(case, category.model, reason, now_s)
        if case.broken or now_s - case.probed_s < _PROBE_PAUSE_S:
            return not case.broken
        case.probed_s = now_s
        smallest = self._smallest(category)
        limit_s = max(_PROBE_LIMIT_S, _PROBE_LIMIT_FACTOR * self._profile.execution_ns(smallest, 1) / NS_PER_S)
        try:
            await self._inference.warm(smallest, 1, limit_s)
        except FramegateError:
            return False  # Triton was lost meanwhile
        except BackendError as error:
            if error.too_large or error.unreachable:
                return error.too_large  # it was answered all the same
            if error.not_served:  # somebody unloaded it, or Triton is another one: the next look tells
                self._on_broken()
                return False
            self._broken(category.model, error.message, now_s)
            return False
        return True

    def _broken(self, model: str, reason: str, now_s: float) -> None:
        log.warning("model %s has broken and is reloaded; a black frame fails too: %s", model, reason)
        if self.hand_over is not None:
            self.hand_over(model, reason)
            return
        case = self._cases[model]
        case.broken, case.due_s = reason, now_s
        self._take_out(model, f"It has broken and is being reloaded: {reason}")
        self._on_broken()

    def _take_out(self, model: str, reason: str) -> None:
        self._catalogue.fail(model, reason)
        self.tell(ModelLoadFailed(model, reason))

    def missing(self, model: str) -> None:
        """Somebody has unloaded a model that is wanted: it is loaded again while others go on."""
        case = self._cases.setdefault(model, _Case())
        if not case.broken:
            case.broken = "it was unloaded"
            case.due_s = asyncio.get_running_loop().time()
            log.warning("model %s was unloaded by somebody else; it is loaded again", model)
            self._take_out(model, "It was unloaded, and is being loaded again.")

    def broke(self, model: str, reason: str) -> None:
        """A model was loaded, but fails in its warm-up: it is loaded again after a pause, unless that is under way."""
        case = self._cases.setdefault(model, _Case())
        if not case.broken:
            case.broken = reason
            case.due_s = asyncio.get_running_loop().time() + case.pause_s

    def _smallest(self, category: Category) -> Category:
        shape = self._profile.shapes(category.model, category.version, category.dtype)[0]
        return Category(category.model, category.version, shape, category.dtype)

    async def repair(self) -> None:
        """Reload the broken models whose time has come.

        Raises:
            BackendError: Triton went away meanwhile.
        """
        for model, case in list(self._cases.items()):
            now_s = asyncio.get_running_loop().time()
            if not case.broken or now_s < case.due_s:
                continue
            if any(name == model for name, _ in self._catalogue.serving) or not self.concerns(model):
                del self._cases[model]  # Triton was lost, and set up again; or a command came
            elif await self._loader.reload(model):
                log.info("model %s has been reloaded and is served again", model)
                del self._cases[model]
                self.tell(ModelLoaded(model, warm=True))
            else:
                case.due_s = asyncio.get_running_loop().time() + case.pause_s
                case.pause_s = min(2 * case.pause_s, _LONGEST_PAUSE_S)


def _say(case: _Case, model: str, reason: str, now_s: float) -> None:
    """Log a failed job: a new reason soon, the same one again after a while."""
    case.failures += 1
    silent_s = now_s - case.said_s
    if silent_s < _PROBE_PAUSE_S or (reason == case.said and silent_s < _REMIND_S):
        return
    log.warning("a job of model %s failed (%d since this was last said): %s", model, case.failures, reason)
    case.said, case.said_s, case.failures = reason, now_s, 0
