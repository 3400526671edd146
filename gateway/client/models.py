"""Models of a gateway as the SDK shows them, and the calls that load, unload and pin them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from gateway.client.connection import Connection

Document = Mapping[str, Any]

#: How long a load or an unload is waited for: longer than `residency.unload_timeout_s` and `residency.load_timeout_s`
#: together (150 s), after which the gateway answers by itself.
COMMAND_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class ModelInfo:
    """One model of the repository.

    Attributes:
        name: Triton's name.
        state: ``absent``, ``loading``, ``resident``, ``unloading`` or ``failed``.
        reason: Why, where that is worth saying.
        versions: Those that Triton lists or the profile has.
        size_bytes: What it takes when it is loaded; None: not known.
        held_bytes: What it takes now; None: not known.
        pins: Why it has to stay: ``stream``, ``command``, ``hold``; empty: it may go when others need the room.
        swap_region: Whether it takes turns with others.
        barred: Whether it was unloaded by command, so that only a load by command brings it back.
        frames_waiting: Frames that wait for it.
        last_used_ago_ms: Since a job of it last ended; None: it has not run.
        next_use_in_ms: Until its next frame is expected, 0 while frames wait or are due; None: not known.
        retry_in_ms: Until a load that has failed may be tried again; None: it has not.
        raw: The whole entry.
    """

    name: str
    state: str
    reason: str
    versions: tuple[str, ...]
    size_bytes: int | None
    held_bytes: int | None
    pins: tuple[str, ...]
    swap_region: bool
    barred: bool
    frames_waiting: int
    last_used_ago_ms: float | None
    next_use_in_ms: float | None
    retry_in_ms: float | None
    raw: Document = field(repr=False, default_factory=dict)

    @classmethod
    def from_json(cls, document: Document) -> ModelInfo:
        """Read one of ``models``, or the answer of a command."""
        return cls(
            name=str(document["name"]),
            state=str(document["state"]),
            reason=str(document["reason"]),
            versions=tuple(str(each["version"]) for each in document["versions"]),
            size_bytes=document["size_bytes"],
            held_bytes=document["held_bytes"],
            pins=tuple(document["pins"]),
            swap_region=bool(document["swap_region"]),
            barred=bool(document["barred"]),
            frames_waiting=int(document["frames_waiting"]),
            last_used_ago_ms=document["last_used_ago_ms"],
            next_use_in_ms=document["next_use_in_ms"],
            retry_in_ms=document["retry_in_ms"],
            raw=document,
        )


@dataclass(frozen=True)
class MemoryInfo:
    """The memory budget of a gateway. Figures are in `unit`: ``bytes`` or ``models``.

    Attributes:
        budget: None: there is none, and models stay as they are.
        headroom: What may be held beyond it while models unload.
        held: By models and by the swap region.
        region: Set aside for models that take turns.
        lost: What the device holds beyond all that is known to be in it.
        free: What is left for further models; None without a budget.
    """

    unit: str
    budget: int | None
    headroom: int
    held: int
    region: int
    lost: int
    free: int | None

    @classmethod
    def from_json(cls, document: Document) -> MemoryInfo:
        """Read ``memory``."""
        return cls(
            unit=str(document["unit"]),
            budget=document["budget"],
            headroom=int(document["headroom"]),
            held=int(document["held"]),
            region=int(document["region"]),
            lost=int(document["lost"]),
            free=document["free"],
        )


@dataclass(frozen=True)
class Models:
    """All models, in order of name, and the memory that they share."""

    models: tuple[ModelInfo, ...]
    memory: MemoryInfo
    raw: Document = field(repr=False, default_factory=dict)

    @classmethod
    def from_json(cls, document: Document) -> Models:
        """Read the answer of ``GET /v1/models``."""
        return cls(
            models=tuple(ModelInfo.from_json(entry) for entry in document["models"]),
            memory=MemoryInfo.from_json(document["memory"]),
            raw=document,
        )


class ModelCalls(Connection):
    """The part of the client that is about models."""

    async def models(self) -> Models:
        """Return all models and the memory budget."""
        return Models.from_json(await self._json("GET", "/v1/models"))

    async def load_model(self, name: str, *, timeout_s: float = COMMAND_TIMEOUT_S) -> ModelInfo:
        """Have a model loaded, or what is new of it if it is there; wait for that.

        Args:
            name: Triton's name of it.
            timeout_s: Longest wait; the load goes on all the same.

        Raises:
            ProblemError: ``unknown_model``, ``no_room_for_model``, ``model_load_failed``; nothing was evicted for it.
        """
        return await self._command(name, "load", {}, timeout_s)

    async def unload_model(self, name: str, *, force: bool = False, timeout_s: float = COMMAND_TIMEOUT_S) -> ModelInfo:
        """Have a model unloaded, and kept out until `load_model`; wait until it is gone.

        Args:
            name: Triton's name of it.
            force: Even though real-time streams or a pin need it: their frames fail from then on.
            timeout_s: Longest wait; the unload goes on all the same.

        Raises:
            ProblemError: ``unknown_model``; ``model_pinned`` without `force`.
        """
        return await self._command(name, "unload", {"force": force}, timeout_s)

    async def pin_model(self, name: str, *, pinned: bool = True) -> ModelInfo:
        """Have a model stay in memory, or, with `pinned` false, go when others need the room; returns at once.

        Raises:
            ProblemError: ``unknown_model``, ``no_room_for_model``, ``model_not_loaded`` (it was unloaded by command).
        """
        return await self._command(name, "pin", {"pinned": pinned}, self.timeout_s)

    async def _command(self, name: str, verb: str, body: Mapping[str, Any], timeout_s: float) -> ModelInfo:
        path = f"/v1/models/{quote(name, safe='')}/{verb}"
        return ModelInfo.from_json(await self._json("POST", path, body=body, timeout_s=timeout_s))
