"""Frozen data that is cheap to make.

A frozen dataclass sets every field through ``object.__setattr__``: a `Frame` then costs 0.84 us, five times what it
costs where plain assignment does, and the engine makes several such things for every frame. So what is made for every
frame or job is frozen for the type checker, which sees `dataclasses.dataclass` here, and nothing else: at run time
nobody pays for a check that was made before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as light_dataclass
else:
    from dataclasses import dataclass

    def light_dataclass(*, frozen: bool, slots: bool):  # noqa: ANN201 - the type checker sees the other one
        """As ``dataclass(frozen=True, slots=True)``: equal by its fields, with a hash, and not to be changed."""
        assert frozen, "what is not frozen is a dataclass"
        return dataclass(slots=slots, unsafe_hash=True)


__all__ = ["light_dataclass"]
