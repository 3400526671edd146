"""Keeps the models in Triton's memory to what the engine wants there: when Triton is set up, and at each later look.

With a memory budget the engine is told of models that went without its doing, and has them loaded when they are needed;
models of ours that it does not know to be there are unloaded. Without one, models that went are loaded again at once
(`gateway.runtime.repairs`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from gateway.core.events import Event, ModelLoaded, ModelLoadFailed, ModelLost
from gateway.core.types import ModelState
from gateway.runtime.loading import ModelLoader
from gateway.runtime.model_control import TritonModels
from gateway.runtime.models import Catalogue
from gateway.runtime.repairs import Repairs
from gateway.runtime.repository import Repository

log = logging.getLogger(__name__)


class Wanted(Protocol):
    """Which models the engine wants there, and where it takes them to stand."""

    def models_to_load(self, ready: Iterable[str], wanted: Iterable[str]) -> tuple[str, ...]:
        """Return which of those that are `ready`, or `wanted`, are to be there when the worker is back."""

    def state(self, model: str) -> ModelState:
        """Return where a model stands."""


class AllWanted:
    """Implements `Wanted` where there is no engine."""

    def models_to_load(self, ready: Iterable[str], wanted: Iterable[str]) -> tuple[str, ...]:
        """Return those that are wanted."""
        return tuple(wanted)

    def state(self, model: str) -> ModelState:
        """All are there."""
        return ModelState.RESIDENT


class Upkeep:
    """See the module's docstring.

    Args:
        repository, catalogue, models, loader, repairs: Of the worker.
        served: Models to serve; empty for those that are loaded already.
        managed: There is a memory budget.
    """

    def __init__(
        self,
        repository: Repository,
        catalogue: Catalogue,
        *,
        models: TritonModels,
        loader: ModelLoader,
        repairs: Repairs,
        served: tuple[str, ...],
        managed: bool,
    ) -> None:
        self._repository = repository
        self._catalogue = catalogue
        self._models = models
        self._loader = loader
        self._repairs = repairs
        self._served = served
        self._managed = managed
        self._wanted: Wanted = AllWanted()
        self._post: Callable[[Event], object] = lambda event: None
        if managed:
            repairs.hand_over = self._hand_over
        else:
            loader.on_unfit = repairs.broke
        repairs.tell = lambda event: self._post(event)
        repairs.concerns = self._concerns

    def connect(self, post: Callable[[Event], object], wanted: Wanted | None) -> None:
        """Say where events go, and who knows where models stand."""
        self._post = post
        self._wanted = wanted or self._wanted

    async def set_up(self) -> None:
        """Have those models in Triton, warm, that the engine wants there, and none other of ours; tell it of each.

        Raises:
            BackendError: Triton went away meanwhile.
        """
        await self._repository.look()
        ready = sorted({name for name, _ in self._catalogue.ready_versions()})
        wanted = tuple(dict.fromkeys((*(self._served or ready), *self._models.brought)))
        chosen = self._wanted.models_to_load(ready, wanted)
        await self._loader.remove([model for model in ready if model not in chosen and self._ours(model)])
        failures = await self._loader.load(chosen)
        if self._managed:
            await self._loader.remove(failures)
        for model in chosen:
            reason = failures.get(model)
            self._models.in_use.on_change(model)
            self._post(ModelLoaded(model, warm=True) if reason is None else ModelLoadFailed(model, reason))

    async def look(self, timeout_s: float, *, same: bool) -> str:
        """See to it that what Triton has is what the engine takes it to have.

        Args:
            timeout_s: Limit of one answer.
            same: It is certain to be the same Triton as at the last look.

        Returns:
            Models that are gone although they should not be, and that nobody takes care of.

        Raises:
            BackendError: Triton does not answer.
        """
        before = {name for name, _ in self._catalogue.serving if not self._models.busy(name)}
        await self._repository.look(timeout_s)
        await self._models.in_use.refresh(self._models.busy)
        gone = {name for name in before - {name for name, _ in self._catalogue.serving} if self._stays(name)}
        self._undo_late()
        if self._managed:
            self._reconcile(gone)
            return ""
        if not self._served:
            return ""  # nothing was asked for in particular: whoever unloads a model means it
        if same:
            for model in gone:
                self._repairs.missing(model)
            return ""
        return ", ".join(f"model {name}" for name in sorted(gone))

    def _ours(self, model: str) -> bool:
        """Whether a model is there because of us, or for us."""
        return not self._served or model in self._served or self._catalogue.knows(model)

    def _stays(self, model: str) -> bool:
        """Whether a model is to be in Triton, and nothing is being done about it."""
        return self._wanted.state(model) is ModelState.RESIDENT and not self._models.busy(model)

    def _concerns(self, model: str) -> bool:
        """Whether a model that is not in use is to be, and nothing is being done about it."""
        there = self._wanted.state(model) in (ModelState.RESIDENT, ModelState.FAILED)
        return there and not self._models.busy(model)

    def _reconcile(self, gone: Iterable[str]) -> None:
        """Tell the engine of models that are not there any more; unload those that it does not know to be there."""
        for model in gone:
            log.warning("model %s was unloaded by somebody else", model)
            self._post(ModelLost(model, "it was unloaded by somebody else"))
        for model in {name for name, _ in self._catalogue.ready_versions()}:
            if self._ours(model) and self._wanted.state(model).away:
                self._models.undo(model)

    def _undo_late(self) -> None:
        """Unload what was loaded after it had been given up, and would not go so far."""
        for model in self._models.late.left:
            if self._wanted.state(model).away:
                self._models.undo(model)

    def _hand_over(self, model: str, reason: str) -> None:
        """A model has broken: the engine has it loaded again when it is needed."""
        self._models.broke(model)
        self._catalogue.leave(model)
        self._post(ModelLost(model, reason))
