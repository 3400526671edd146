"""Looks at Triton's repository index, one look after the other.

Several tasks look: the watch, each load and each unload. An index that was asked for before a model was there and that
comes after it was taken in would take it out of use again; so each look waits for the one before it.
"""

from __future__ import annotations

import asyncio

from gateway.runtime.models import Catalogue
from gateway.triton.client import TritonClient
from gateway.triton.types import BackendError, IndexEntry

#: States of the index in which a model takes memory.
_IN_MEMORY = frozenset({"ready", "loading", "unloading"})
#: An index costs Triton 0.6 ms. It is asked for after this share of the time that an unload has taken so far, but no
#: more often and no more seldom than: so its end is seen at most 2 % late, or 50 ms.
_POLL_SHARE = 0.02
_FIRST_POLL_S, _LAST_POLL_S = 0.01, 0.05
#: What Triton 2.51 says of a model without files: no directory of it, none of a version, none that its policy takes.
_NOT_BUILT = ("failed to poll from model repository", "no version is available", "at least one version must be")


class Repository:
    """See the module's docstring.

    Args:
        client: Of Triton.
        catalogue: Told what is seen.
    """

    def __init__(self, client: TritonClient, catalogue: Catalogue) -> None:
        self._client = client
        self._catalogue = catalogue
        self._turn = asyncio.Lock()

    async def look(self, timeout_s: float | None = None) -> None:
        """Tell the catalogue of the models that are ready now. Raises `BackendError`."""
        async with self._turn:
            index = await self._client.index(timeout_s)
            listed = {entry.name for entry in index}
            for name, version in self._catalogue.serving:
                # A model whose directory is gone for a moment is not listed, but Triton serves on.
                if name not in listed and await self._client.serves(name, version):
                    index.append(IndexEntry(name, version, "ready", "Its directory is gone."))
            self._catalogue.look(index)

    async def until_gone(self, model: str, limit_s: float) -> None:
        """Return once Triton does not list a model as in memory any more: it answers an unload before that.

        Raises:
            BackendError: It does still after `limit_s`, or does not answer.
        """
        clock = asyncio.get_running_loop().time
        began_s = clock()
        while await self._in_memory(model):
            took_s = clock() - began_s
            if took_s > limit_s:
                raise BackendError(f"Triton has not let go of it within {limit_s:g} s")
            await asyncio.sleep(min(max(_POLL_SHARE * took_s, _FIRST_POLL_S), _LAST_POLL_S))

    async def _in_memory(self, model: str) -> bool:
        return any(entry.name == model and entry.state in _IN_MEMORY for entry in await self._client.index())


def next_step(model: str, said: str) -> str:
    """Return what to do about a model that Triton finds no files of; empty about every other."""
    if not any(words in said for words in _NOT_BUILT):
        return ""
    return (
        f". Its files are not in Triton's model repository. If `framegate zoo list` has it, build it with "
        f"`framegate zoo build {model}`; else put it there."
    )
