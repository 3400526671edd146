"""Takes the versions of a model that Triton serves into use, and sees to it that they stay those."""

from __future__ import annotations

import logging
from collections.abc import Callable

from gateway.runtime.models import Catalogue
from gateway.runtime.repository import Repository
from gateway.runtime.warmth import Warmth
from gateway.triton.client import TritonClient
from gateway.triton.types import BackendError, ModelMetadata

log = logging.getLogger(__name__)


class VersionsInUse:
    """See the module's docstring.

    Args:
        client, repository, catalogue, warmth: Of Triton, and what is known of it.

    Attributes:
        on_change: Told of a model of which versions may have come or gone.
    """

    def __init__(self, client: TritonClient, repository: Repository, catalogue: Catalogue, warmth: Warmth) -> None:
        self.on_change: Callable[[str], object] = lambda model: None
        self._client = client
        self._repository = repository
        self._catalogue = catalogue
        self._warmth = warmth

    async def take_in(self, model: str) -> None:
        """Learn the versions that are ready, and let them be used.

        Raises:
            BackendError: There is none, or Triton does not say what they are.
        """
        await self._repository.look()
        self._use(model, await self._ready(model))

    async def refresh(self, busy: Callable[[str], bool]) -> None:
        """Take in versions that came or went by others' doing, as of the last look.

        Args:
            busy: Whether a model is on its way in or out, so that this is seen to.

        Raises:
            BackendError: Triton is not there.
        """
        for model in self._catalogue.outdated():
            if busy(model):
                continue
            try:
                found = await self._ready(model)
            except BackendError as error:
                if error.unreachable:
                    raise
                log.warning("what is new of model %s is not known yet: %s", model, error.message)
                continue
            if not busy(model) and model in self._catalogue.outdated():
                log.warning("model %s is served in other versions than before, by somebody else's doing", model)
                self._use(model, found)

    async def _ready(self, model: str) -> list[ModelMetadata]:
        versions = sorted(version for name, version in self._catalogue.ready_versions() if name == model)
        if not versions:
            raise BackendError("Triton says that it is loaded, but lists no version of it as ready")
        return [await self._client.metadata(model, version) for version in versions]

    def _use(self, model: str, versions: list[ModelMetadata]) -> None:
        self._warmth.forget(model)
        self._catalogue.take_in(model, versions)
        self.on_change(model)
