"""What the calls about models take and answer. Units are in the names."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class LoadRequest(BaseModel):
    """A model is wanted in memory: an empty object, or no body at all."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class UnloadRequest(BaseModel):
    """A model is to leave the memory, and not to come back by itself."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    force: bool = Field(False, description="Even though streams or a pin need it: their frames fail from then on.")


class PinRequest(BaseModel):
    """A model is to stay in memory, or may go again."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    pinned: bool = Field(True, description="`false`: it may go when others need its room.")


class ModelVersion(BaseModel):
    """One version of a model: as Triton lists it, and what of it can be admitted."""

    version: str
    state: str = Field(
        description="Triton's word: `ready`, `loading`, `unloading`, `unavailable`; `absent`: only the profile has it; "
        "`failed`."
    )
    reason: str = Field(description="Triton's, if it is not ready.")
    profiled_shapes: list[tuple[int, ...]]
    single_frame_shapes: list[tuple[int, ...]] = Field(
        description="Shapes of which the model refuses batches: their frames run one at a time."
    )


class ModelEntry(BaseModel):
    """A model of the repository."""

    name: str
    state: Literal["absent", "loading", "resident", "unloading", "failed"] = Field(
        description="`resident`: loaded and warmed, its jobs may start. `loading` lasts until it is warmed. Loading, "
        "resident and unloading ones hold memory."
    )
    reason: str = Field(
        description="Why, where that is worth saying; of a failed one, Triton's words; and that the version which is "
        "served is not in the profile."
    )
    versions: list[ModelVersion]
    size_bytes: int | None = Field(description="What it takes when it is loaded; null: not known.")
    held_bytes: int | None = Field(description="What it takes now; during a reload twice. null: not known.")
    pins: list[Literal["stream", "command", "hold"]] = Field(
        description="Why it has to stay: real-time streams of it are admitted; by command; a registration or a call is "
        "about to use it. Empty: it may go when others need its room."
    )
    swap_region: bool = Field(description="It takes turns with others: its streams are admitted with `swapping`.")
    barred: bool = Field(description="It was unloaded by command: only a load by command brings it back.")
    frames_waiting: int
    last_used_ago_ms: float | None = Field(description="Since a job of it last ended; null: none has.")
    next_use_in_ms: float | None = Field(
        description="Until its next frame is expected; 0 while frames wait for it or are due; null: none is."
    )
    retry_in_ms: float | None = Field(description="Until a failed load may be tried again; null: it did not fail.")


class Memory(BaseModel):
    """The memory that models share. Figures are in `unit`."""

    unit: Literal["bytes", "models"]
    budget: int | None = Field(description="null: there is none; models stay as they are but for commands.")
    headroom: int = Field(description="What may be held beyond it while models that unload still hold their memory.")
    held: int = Field(description="By models and by the swap region.")
    region: int = Field(description="Set aside for models that take turns; part of `held`.")
    lost: int = Field(description="What the device holds beyond all that is known to be in it; it counts as used.")
    free: int | None = Field(description="What is left for further models; null without a budget.")


class ModelList(BaseModel):
    """All models of the repository, in order of name, and their memory."""

    models: list[ModelEntry]
    memory: Memory
