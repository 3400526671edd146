"""What is known of one model on one worker."""

from __future__ import annotations

from gateway.core.types import ModelState


class Model:
    """One model that something was said of.

    Attributes:
        name: Triton's.
        state: Where it stands.
        reason: Why, where that is worth saying.
        failure: What went wrong with it last, until it is loaded; empty: nothing.
        size: What it was last reported to hold; None: the profile's figure stands.
        called: What the worker is doing to it: ``load``, ``reload`` or ``unload``; empty: nothing.
        barred: It was unloaded by command: only a command loads it again, and nothing of it starts.
        pinned: By command.
        holders: Who is about to use it, in the order in which they came.
        wanted: A command to load it has not been carried out.
        asked: Place in the order of those that are held or wanted.
        failures: Loads that failed in a row.
        retry_ns: No attempt before that, to load one that has failed, or to unload one that has not gone.
        last_use_ns: When a job of it last ended; None: never.
        owes: The youngest batch that waited for it when it became resident (before that: when its load began):
            until that one and all older ones have started, it does not give way.
        warm_ups: Ids of its first executions that have not ended.
        stayed: It was resident when the worker was lost.
        lingers: A load of it was given up, and the worker may be at it still.
    """

    __slots__ = (
        "asked",
        "barred",
        "called",
        "failure",
        "failures",
        "holders",
        "last_use_ns",
        "lingers",
        "name",
        "owes",
        "pinned",
        "reason",
        "retry_ns",
        "size",
        "state",
        "stayed",
        "wanted",
        "warm_ups",
    )

    def __init__(self, name: str, state: ModelState) -> None:
        self.name = name
        self.state = state
        self.reason = ""
        self.failure = ""
        self.size: int | None = None
        self.called = ""
        self.barred = False
        self.pinned = False
        self.holders: dict[str, None] = {}
        self.wanted = False
        self.asked = 0
        self.failures = 0
        self.retry_ns: int | None = None
        self.last_use_ns: int | None = None
        self.owes: int | None = None
        self.warm_ups: set[int] = set()
        self.stayed = False
        self.lingers = False

    @property
    def away(self) -> bool:
        """Whether it holds no memory: a load could begin."""
        return self.state.away

    def may_be_tried(self, now_ns: int) -> bool:
        """Whether the last failure is over, and the pause after it."""
        return not self.lingers and (self.retry_ns is None or self.retry_ns <= now_ns)
