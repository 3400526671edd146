"""Loads and unloads in Triton, each followed to its end: what the engine is told, and when."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from gateway.core.actions import LoadModel, UnloadModel
from gateway.core.events import Event, LateLoadEnded, ModelLoaded, ModelLoadFailed, ModelUnloaded, ModelUnloadFailed
from gateway.core.types import Category
from gateway.errors import ModelNotLoaded
from gateway.runtime.memory_probe import MemoryProbe
from gateway.runtime.model_control import TritonModels
from gateway.runtime.model_times import ModelTimes
from gateway.runtime.models import Catalogue
from gateway.runtime.repository import Repository
from gateway.runtime.warmth import Warmth
from gateway.triton.client import TritonClient
from gateway.triton.types import InferenceCall
from tests.runtime_support import until
from tests.stand_in import Model, StandIn

CATEGORY = Category("b", "1", (8, 8, 3), "UINT8")


class Rig:
    """`TritonModels` on a stand-in, and what it has told."""

    def __init__(self, triton: StandIn, client: TritonClient, times: ModelTimes, *, come_back: bool = True) -> None:
        self.triton = triton
        self.told: list[tuple[float, Event]] = []
        self.losses: list[str] = []
        self.client = client
        self.catalogue = Catalogue(come_back=come_back)
        self.warmth = Warmth()
        self.models = TritonModels(
            client,
            Repository(client, self.catalogue),
            self.catalogue,
            warmth=self.warmth,
            times=times,
            probe=MemoryProbe(client, None, lambda model: None, interval_s=1.0),
        )
        self.models.connect(lambda event: self.told.append((time.monotonic(), event)), self.losses.append)

    @property
    def events(self) -> list[Event]:
        return [event for _, event in self.told]

    async def load(self, model: str, reason: str = "demand") -> Event:
        return await self._next(lambda: self.models.load(LoadModel(model, reason)))

    async def unload(self, model: str) -> Event:
        return await self._next(lambda: self.models.unload(UnloadModel(model, "eviction")))

    async def _next(self, act: Callable[[], None]) -> Event:
        before = len(self.told)
        act()
        await until(lambda: len(self.told) > before)
        return self.events[before]


@asynccontextmanager
async def rig_on(*models: Model, load_s: float = 5, unload_s: float = 5, come_back: bool = True) -> AsyncIterator[Rig]:
    async with StandIn(*models) as triton:
        client = TritonClient(triton.url, max_message_bytes=1 << 20)
        rig = Rig(triton, client, ModelTimes(load_s, unload_s), come_back=come_back)
        try:
            yield rig
        finally:
            await rig.models.abandon()
            await client.close()


def test_a_load_ends_when_the_model_is_known_and_may_be_used() -> None:
    async def main() -> None:
        async with rig_on(Model("b", loaded=False, load_delay_s=0.05)) as rig:
            rig.warmth.note(CATEGORY, 1)
            assert isinstance(await rig.load("b"), ModelLoaded)
            assert rig.catalogue.served("b").inputs[0].name == "frames"
            assert not rig.warmth.knows(CATEGORY, 1)
            assert rig.models.quiet

    asyncio.run(main())


def test_a_refused_load_says_why_and_leaves_nothing() -> None:
    async def main() -> None:
        async with rig_on(Model("b", loaded=False, load_error="its file is cut off")) as rig:
            assert await rig.load("b") == ModelLoadFailed("b", "its file is cut off")
            assert not rig.catalogue.knows("b")

    asyncio.run(main())


def test_a_model_without_files_is_answered_with_what_to_do() -> None:
    async def main() -> None:
        async with rig_on(Model("b")) as rig:
            event = await rig.load("nowhere")
            assert isinstance(event, ModelLoadFailed)
            assert "framegate zoo build nowhere" in event.reason

    asyncio.run(main())


def test_an_unload_is_over_when_the_index_says_so_and_not_before() -> None:
    async def main() -> None:
        async with rig_on(Model("b", unload_delay_s=0.3)) as rig:
            await rig.load("b")
            event = await rig.unload("b")
            assert event == ModelUnloaded("b")
            gone = next(t for t, name, state in rig.triton.repository.states if (name, state) == ("b", "UNAVAILABLE"))
            late_s = rig.told[-1][0] - gone
            assert 0 <= late_s < 0.2
            [call] = rig.triton.log("unload")
            assert gone - call.began > 0.25

    asyncio.run(main())


def test_nothing_is_sent_to_a_model_that_is_to_go_but_what_it_takes_stays_known() -> None:
    async def main() -> None:
        async with rig_on(Model("b", unload_delay_s=0.1)) as rig:
            await rig.load("b")
            rig.models.unload(UnloadModel("b", "eviction"))
            with pytest.raises(ModelNotLoaded):
                rig.catalogue.served("b")
            assert rig.catalogue.known("b").name == "b"
            await until(lambda: ModelUnloaded("b") in rig.events)
            assert rig.catalogue.known("b").name == "b"
            await rig.load("b")
            assert rig.catalogue.served("b").version == "1"

    asyncio.run(main())


def test_without_a_budget_a_model_that_has_gone_is_not_known() -> None:
    async def main() -> None:
        async with rig_on(Model("b"), come_back=False) as rig:
            await rig.load("b")
            await rig.unload("b")
            with pytest.raises(ModelNotLoaded):
                rig.catalogue.known("b")

    asyncio.run(main())


def test_a_load_without_an_answer_fails_in_time_and_is_undone_should_it_come() -> None:
    async def main() -> None:
        b = Model("b", loaded=False, load_hangs=True)
        async with rig_on(b, load_s=0.2) as rig:
            began = time.monotonic()
            event = await rig.load("b")
            assert time.monotonic() - began < 1
            assert isinstance(event, ModelLoadFailed)
            assert "0.2 s" in event.reason
            assert event.lingers
            assert (rig.models.late.models, rig.models.late.left) == ({"b"}, set())
            b.load_hangs = False
            await until(lambda: len(rig.events) == 2)
            assert rig.events[1] == LateLoadEnded("b")
            assert not b.loaded
            assert rig.models.quiet
            assert rig.models.late.models == set()

    asyncio.run(main())


@pytest.mark.parametrize("reload", [False, True])
def test_a_load_that_was_given_up_and_brings_nothing_to_undo_is_over_when_triton_says_so(reload: bool) -> None:
    """One that fails in the end, and a reload: its model serves on whatever comes of it."""

    async def main() -> None:
        b = Model("b", loaded=reload, load_hangs=True, load_error="" if reload else "its file is cut off")
        async with rig_on(b, load_s=0.1) as rig:
            event = await rig.load("b", "reload" if reload else "demand")
            assert isinstance(event, ModelLoadFailed)
            assert event.lingers
            b.load_hangs = False
            await until(lambda: len(rig.events) == 2)
            assert rig.events[1] == LateLoadEnded("b")
            assert rig.models.late.models == set()
            assert rig.triton.log("unload") == []

    asyncio.run(main())


def test_what_was_loaded_late_and_would_not_go_is_still_held() -> None:
    async def main() -> None:
        b = Model("b", loaded=False, load_hangs=True, unload_error="it is in use")
        async with rig_on(b, load_s=0.1) as rig:
            await rig.load("b")
            b.load_hangs = False
            await until(lambda: rig.triton.log("unload") and rig.models.quiet)
            assert len(rig.events) == 1
            assert rig.models.late.models == rig.models.late.left == {"b"}
            b.unload_error = ""
            rig.models.undo("b")  # as the watch does
            await until(lambda: len(rig.events) == 2)
            assert rig.events[1] == LateLoadEnded("b")

    asyncio.run(main())


def test_a_load_that_hangs_does_not_keep_its_memory_from_others_for_ever() -> None:
    async def main() -> None:
        b = Model("b", loaded=False, load_hangs=True)
        async with rig_on(b, load_s=0.1, unload_s=0.2) as rig:
            await rig.load("b")
            began = time.monotonic()
            await until(lambda: len(rig.events) == 2)
            assert time.monotonic() - began > 0.15
            assert rig.events[1] == LateLoadEnded("b")
            b.load_hangs = False
            await until(lambda: rig.triton.log("unload") and rig.models.quiet)
            assert len(rig.events) == 2
            assert rig.models.late.models == set()

    asyncio.run(main())


def test_a_model_that_is_loaded_after_a_load_that_hung_is_not_late_any_more() -> None:
    async def main() -> None:
        b = Model("b", loaded=False, load_hangs=True)
        async with rig_on(b, load_s=2, unload_s=0.1) as rig:
            await rig.load("b")
            await until(lambda: len(rig.events) == 2)
            b.load_hangs = False
            assert isinstance(await rig.load("b"), ModelLoaded)
            assert rig.models.late.models == set()
            assert rig.triton.log("unload") == []

    asyncio.run(main())


def test_every_load_that_hangs_ends_when_triton_is_lost_also_one_that_was_tried_again() -> None:
    async def main() -> None:
        async with rig_on(Model("b", loaded=False, load_hangs=True), load_s=0.1, unload_s=0.1) as rig:
            for tries in (1, 2):
                await rig.load("b")
                await until(lambda tries=tries: len(rig.events) == 2 * tries)
            calls = [task for task in asyncio.all_tasks() if task.get_name() == "load call of model b"]
            assert len(calls) == 2
            await rig.models.abandon()
            assert all(call.cancelled() for call in calls)

    asyncio.run(main())


def test_a_load_begins_when_what_is_undone_is_gone() -> None:
    async def main() -> None:
        b = Model("b", unload_delay_s=0.2)
        async with rig_on(b) as rig:
            rig.models.undo("b")
            await asyncio.sleep(0)
            assert isinstance(await rig.load("b"), ModelLoaded)
            assert b.loaded
            assert [call.method for call in rig.triton.calls] == ["unload", "load"]
            gone = next(t for t, _, state in rig.triton.repository.states if state == "UNAVAILABLE")
            assert rig.triton.log("load")[0].began >= gone

    asyncio.run(main())


def test_an_unload_that_does_not_come_fails_in_time() -> None:
    async def main() -> None:
        b = Model("b", unload_hangs=True)
        async with rig_on(b, unload_s=0.2) as rig:
            await rig.load("b")
            event = await rig.unload("b")
            assert isinstance(event, ModelUnloadFailed)
            assert "0.2 s" in event.reason
            b.unload_hangs = False

    asyncio.run(main())


def test_an_unload_that_triton_refuses_fails_with_its_words_and_the_model_serves_on() -> None:
    async def main() -> None:
        async with rig_on(Model("b", unload_error="it is in use")) as rig:
            await rig.load("b")
            assert await rig.unload("b") == ModelUnloadFailed("b", "it is in use")
            assert rig.catalogue.served("b").name == "b"

    asyncio.run(main())


def test_models_come_and_go_beside_each_other_on_a_channel_of_their_own() -> None:
    async def main() -> None:
        models = [Model(name, loaded=False, load_delay_s=0.3) for name in ("a", "b", "c")]
        async with rig_on(Model("echo"), *models) as rig:
            began = time.monotonic()
            for model in models:
                rig.models.load(LoadModel(model.name, "demand"))
            await until(lambda: len(rig.told) == 3)
            assert time.monotonic() - began < 0.8
            tensor = InferenceCall("echo", "", "frames", "UINT8", (1, 8, 8, 3), memoryview(bytes(192)))
            await rig.client.infer(tensor)
            [loads] = {call.peer for call in rig.triton.log("load")}
            [infers] = {call.peer for call in rig.triton.log("infer")}
            assert loads != infers

    asyncio.run(main())


def test_a_broken_model_is_unloaded_before_it_is_loaded() -> None:
    async def main() -> None:
        async with rig_on(Model("b")) as rig:
            rig.models.broke("b")
            await rig.load("b")
            await rig.load("b")
            assert [call.method for call in rig.triton.calls] == ["unload", "load", "load"]

    asyncio.run(main())


def test_a_failed_reload_leaves_the_old_version_in_use() -> None:
    async def main() -> None:
        b = Model("b")
        async with rig_on(b) as rig:
            await rig.load("b")
            b.next_versions, b.load_error = ("2",), "corrupt"
            assert await rig.load("b", "reload") == ModelLoadFailed("b", "corrupt")
            assert rig.catalogue.served("b").version == "1"
            b.load_error = ""
            assert isinstance(await rig.load("b", "reload"), ModelLoaded)
            assert rig.catalogue.served("b").version == "2"
            assert rig.triton.log("unload") == []

    asyncio.run(main())


def test_a_lost_triton_is_told_to_the_supervisor_and_to_nobody_else() -> None:
    async def main() -> None:
        async with rig_on(Model("b", loaded=False, load_hangs=True)) as rig:
            rig.models.load(LoadModel("b", "demand"))
            await until(lambda: rig.triton.log("load"))
            await rig.triton.stop()
            await until(lambda: rig.losses)
            await until(lambda: rig.models.quiet)
            assert rig.events == []

    asyncio.run(main())


def test_what_was_under_way_when_triton_was_lost_is_never_told() -> None:
    async def main() -> None:
        models = (Model("a", loaded=False, load_delay_s=0.1), Model("b", unload_delay_s=0.1))
        async with rig_on(*models) as rig:
            rig.models.load(LoadModel("a", "demand"))
            rig.models.unload(UnloadModel("b", "eviction"))
            await until(lambda: len(rig.triton.calls) == 2)
            rig.models.drop()
            assert rig.models.quiet
            await rig.models.abandon()
            await asyncio.sleep(0.2)
            assert rig.events == []

    asyncio.run(main())


def test_dropped_before_it_began_it_leaves_nothing_behind() -> None:
    """No coroutine that was never awaited: that is a warning, and here an error."""

    async def main() -> None:
        async with rig_on(Model("b")) as rig:
            rig.models.load(LoadModel("b", "demand"))
            rig.models.unload(UnloadModel("b", "eviction"))
            await rig.models.abandon()
            assert rig.triton.calls == []
            assert rig.events == []

    asyncio.run(main())


def test_a_fault_of_ours_does_not_leave_the_engine_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with rig_on(Model("b")) as rig:

            def fault(*_: object) -> None:
                raise KeyError("inputs")

            monkeypatch.setattr(rig.catalogue, "take_in", fault)
            event = await rig.load("b")
            assert isinstance(event, ModelLoadFailed)
            assert "fault of the gateway" in event.reason

    asyncio.run(main())
