"""One timer for many waits: each is told in time, once, unless it has ended (times in s)."""

import asyncio
from collections.abc import Callable

import pytest

from gateway.runtime.ends import Ends


class Loop(asyncio.SelectorEventLoop):
    """Its time is set."""

    now = 100.0
    timers = 0

    def time(self) -> float:
        return self.now

    def call_at(self, *arguments, **options):  # type: ignore[no-untyped-def]
        self.timers += 1
        return super().call_at(*arguments, **options)


class Waits:
    """What a test moves by hand."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.told: list[tuple[str, float]] = []
        self.then: Callable[[str], object] = lambda name: None
        self.ends: Ends[str] = Ends(self._over)

    def _over(self, name: str) -> None:
        self.told.append((name, self.loop.now))
        self.then(name)

    async def at(self, now: float) -> None:
        self.loop.now = now
        for _ in range(3):
            await asyncio.sleep(0)


@pytest.fixture
def waits():
    with asyncio.Runner(loop_factory=Loop) as runner:
        yield Waits(runner.get_loop()), runner.run


def test_each_is_told_in_time_and_once(waits) -> None:
    waits, run = waits

    async def main() -> None:
        for name, now in (("a", 100), ("b", 101), ("c", 101)):
            await waits.at(now)
            waits.ends.begin(name, 10)
        await waits.at(109.9)
        assert waits.told == []
        await waits.at(110)
        assert waits.told == [("a", 110)]
        await waits.at(111)
        await waits.at(130)
        assert waits.told == [("a", 110), ("b", 111), ("c", 111)]

    run(main())


def test_one_that_has_ended_is_not_told_and_costs_no_timer(waits) -> None:
    waits, run = waits

    async def main() -> None:
        for n in range(128):
            waits.loop.now += 1 / 128
            waits.ends.begin(str(n), 10)
            waits.ends.end(str(n))
            waits.ends.end(str(n))
        waits.ends.begin("last", 10)
        assert waits.loop.timers == 1
        await waits.at(110.02)
        await waits.at(110.9)
        assert waits.told == []
        await waits.at(111)
        assert waits.told == [("last", 111)]
        assert waits.loop.timers == 2

    run(main())


def test_what_begins_as_another_one_is_told_does_not_hold_up_those_before_it(waits) -> None:
    waits, run = waits

    async def main() -> None:
        waits.ends.begin("a", 10)
        await waits.at(105)
        waits.ends.begin("b", 10)
        waits.then = lambda name: waits.ends.begin("c", 10) if name == "a" else None
        for now in (110, 115, 120):
            await waits.at(now)
        assert waits.told == [("a", 110), ("b", 115), ("c", 120)]

    run(main())


def test_one_may_end_another_and_one_may_fail(waits) -> None:
    waits, run = waits

    async def main() -> None:
        faults = []
        waits.loop.set_exception_handler(lambda _, context: faults.append(str(context["exception"])))
        for name in "abcd":
            waits.ends.begin(name, 10)

        def then(name: str) -> None:
            if name == "a":
                waits.ends.end("b")
            if name == "c":
                raise ValueError(name)

        waits.then = then
        await waits.at(110)
        await waits.at(110)
        assert [name for name, _ in waits.told] == ["a", "c", "d"]
        assert faults == ["c"]

    run(main())


def test_all_can_be_told_at_once_or_none(waits) -> None:
    waits, run = waits

    async def main() -> None:
        for name in "ab":
            waits.ends.begin(name, 10)
        waits.ends.end_all()
        assert waits.told == [("a", 100), ("b", 100)]
        waits.ends.begin("c", 10)
        waits.ends.stop()
        await waits.at(120)
        assert len(waits.told) == 2

    run(main())
