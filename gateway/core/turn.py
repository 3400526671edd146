"""One window's turn in the swap region."""

from __future__ import annotations

from gateway.core.types import Category


class Turn:
    """The turn that is under way.

    Attributes:
        category: Whose.
        due_ns: When it has to be over.
        batches: Ids.
        local_ns: When its jobs are due; None: its model is not loaded yet.
        running: Whether its jobs are ready.
    """

    __slots__ = ("batches", "category", "due_ns", "local_ns", "running")

    def __init__(self, category: Category, due_ns: int, batches: list[int]) -> None:
        self.category = category
        self.due_ns = due_ns
        self.batches = batches
        self.local_ns: int | None = None
        self.running = False
