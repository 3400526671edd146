"""The memory that frames are received into."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gateway.settings.group import MIB, Group


class ArenaSettings(Group):
    """The shared-memory region that frames are received into."""

    bytes: int = Field(256 * MIB, ge=4096, le=1 << 40, description="Size of the region; reserved at start.")
    lock: Literal["auto", "on", "off"] = Field(
        "auto",
        description="Keep it from being swapped out: `auto`, where the limit of locked memory (`ulimit -l`) allows it; "
        "`on`: or do not start.",
    )
    huge_pages: Literal["auto", "off"] = Field(
        "auto",
        description="Huge pages where the system allows them: `/dev/shm` mounted with `huge=advise`, `within_size` or "
        "`always`. The log of the start and `framegate_arena_huge_bytes` say what came of it.",
    )
