"""Small jobs on their way to Triton and back, first executions, and delays that are asked for; on the stand-in."""

import asyncio
import threading
from contextlib import asynccontextmanager

import cv2
import numpy as np
import pytest

from gateway.core.actions import DeliverFrames, PenaltyChanged
from gateway.core.profile import PIXELS
from gateway.core.types import Category, Outcome
from gateway.errors import ArenaFull
from gateway.runtime import resize
from gateway.runtime.injection import DELAY_PARAMETER, DelayInjection
from gateway.runtime.resize import scale_down
from gateway.runtime.warmth import Warmth
from tests.runtime_support import admitted, gateway_on_stand_in, make_profile, shm_files, until
from tests.stand_in import Model

LARGE, SMALL = (16, 16, 3), (8, 8, 3)
#: Far from what the stand-in takes, 2 ms, however busy the machine is.
NATIVE_MS, SMALL_MS = 200.0, 150.0
#: The stand-in takes this long for the job that overruns.
SLOW_S = 0.5


def profile():
    fast, slow = (
        make_profile(shapes=[SMALL], execution_ms=SMALL_MS),
        make_profile(shapes=[LARGE], execution_ms=NATIVE_MS),
    )
    return type(fast)(entries=fast.entries + slow.entries)


class Watcher:
    def __init__(self):
        self.changes, self.causes = [], []

    def on_actions(self, now_ns, event, actions):
        self.changes += [a for a in actions if isinstance(a, PenaltyChanged)]
        self.causes += [a.cause for a in actions if isinstance(a, DeliverFrames)]


class Scene:
    """A gateway, its stand-in and one stream of large frames; the device is not cold any more."""

    def __init__(self, gateway, triton, record, watcher):
        self.gateway, self.triton, self.record, self.watcher = gateway, triton, record, watcher
        self.random = np.random.default_rng(1)

    async def send(self, frames=1):
        """Return the pictures and the results."""
        pictures = [self.random.integers(0, 256, LARGE, dtype=np.uint8) for _ in range(frames)]
        tickets = self.gateway.submit(self.record.stream_id, b"".join(p.tobytes() for p in pictures))
        return pictures, [await ticket.result for ticket in tickets]

    async def overrun(self):
        """Have one job take much longer than profiled."""
        self.triton.delay_s = lambda call: SLOW_S
        await self.send()
        self.triton.delay_s = lambda call: 0.0
        assert self.watcher.changes[-1].penalty_ns > 0


@asynccontextmanager
async def scene(**options):
    watcher = Watcher()
    before = shm_files()
    async with gateway_on_stand_in(profile(), observers=[watcher], **options) as (gateway, triton):
        record = await admitted(gateway, shape=LARGE, period_ms=1_000, deadline_ms=2_000, burst=8)
        setting = Scene(gateway, triton, record, watcher)
        await setting.send()
        yield setting
    assert shm_files() == before


def halved(picture):
    return cv2.resize(picture, (8, 8), interpolation=cv2.INTER_AREA)


@pytest.mark.parametrize("shared_memory", ["auto", "off"])
def test_a_degraded_result_says_so_and_is_of_the_scaled_picture(shared_memory):
    async def main():
        async with scene(triton={"shared_memory": shared_memory}) as at:
            await at.overrun()
            free = at.gateway.arena.free_bytes
            pictures, results = await at.send(3)
            for picture, result in zip(pictures, results, strict=True):
                assert (result.degraded, result.shape, result.outcome) == (True, SMALL, Outcome.MET)
                assert np.array_equal(result.outputs["echo"], halved(picture))
            call = at.triton.log("infer")[-1]
            assert (call.shape, call.way) == ((3, *SMALL), "shm" if at.gateway.shared_memory else "message")
            assert at.gateway.arena.free_bytes == free

    asyncio.run(main())


def test_what_was_lost_is_paid_back_and_shown_meanwhile():
    async def main():
        async with scene() as at:
            await at.overrun()
            penalty = at.record.penalty
            assert penalty.ns == at.watcher.changes[-1].penalty_ns >= (SLOW_S * 1_000 - NATIVE_MS) * 1e6
            assert penalty.shape == SMALL
            (view,) = at.gateway.view().categories
            assert (view.penalty_ns, view.small_shape) == (penalty.ns, SMALL)
            (result,) = (await at.send())[1]
            small = 0
            while result.degraded:
                small += 1
                (result,) = (await at.send())[1]
            assert small == 2  # each job saves nearly 200 ms of about 300
            assert result.shape == LARGE
            assert (penalty.ns, penalty.shape) == (0, None)
            assert [c.reason for c in at.watcher.changes] == ["overrun", *["paid_back"] * small]

    asyncio.run(main())


def test_without_room_in_the_arena_small_frames_go_in_the_message(monkeypatch):
    async def main():
        async with scene() as at:
            await at.overrun()

            def lend(size, *, clear):
                raise ArenaFull(f"no room for {size}")

            monkeypatch.setattr(at.gateway.arena, "lend", lend)
            (picture,), (result,) = await at.send()
            assert np.array_equal(result.outputs["echo"], halved(picture))
            assert at.triton.log("infer")[-1].way == "message"

    asyncio.run(main())


def test_scaling_is_not_done_on_the_loop_and_outlives_a_stop(monkeypatch):
    """The thread writes into the arena: when the gateway stops, it is waited for before the arena goes."""
    began, go_on, ended = threading.Event(), threading.Event(), []

    def slow(*arguments):
        began.set()
        assert go_on.wait(10)
        scale_down(*arguments)  # a fault here would be one of the thread, and so of the job
        ended.append(threading.current_thread())

    async def main():
        async with scene() as at:
            await at.overrun()
            monkeypatch.setattr(resize, "scale_down", slow)
            at.gateway.submit(at.record.stream_id, bytes(16 * 16 * 3))
            while not began.is_set():  # the loop is free
                await asyncio.sleep(0.005)
            stopping = asyncio.ensure_future(at.gateway.stop())
            await asyncio.sleep(1.2)  # longer than the grace of the settings under test
            assert not stopping.done()
            go_on.set()
            await stopping

    asyncio.run(main())
    assert ended
    assert ended[0] is not threading.main_thread()


@pytest.mark.parametrize("dtype", sorted(PIXELS))
def test_scaling_of_each_datatype(dtype):
    kind = {"FP16": np.float16, "FP32": np.float32, "FP64": np.float64}.get(dtype) or np.dtype(dtype.lower())
    random = np.random.default_rng(2)
    frames = (random.random((2, 6, 9, 1)) * 200).astype(kind)
    small = np.zeros((2, 3, 3, 1), kind)
    scale_down(memoryview(frames.tobytes()), (6, 9, 1), memoryview(small).cast("B"), (3, 3, 1), dtype)
    expected = frames.astype(np.float64).reshape(2, 3, 2, 3, 3, 1).mean(axis=(2, 4))
    assert np.abs(small.astype(np.float64) - expected).max() <= (0.5 if np.dtype(kind).kind in "ui" else 0.07)


def test_the_first_execution_after_a_load_is_no_overrun():
    """Every batch is warmed after a load; here the gateway is made to forget it, as if one had been missed."""

    async def main():
        async with scene() as at:
            at.gateway._parts.inference.warmth.forget("echo")
            at.triton.delay_s = lambda call: SLOW_S
            await at.send()
            assert at.watcher.causes[-1] == "warm_up"
            assert at.watcher.changes == []
            await at.send()
            assert at.watcher.causes[-1] == "overrun"

    asyncio.run(main())


def test_warmth():
    warmth = Warmth()
    category = Category("m", "1", LARGE)
    warmth.note(category, 2)
    assert warmth.knows(category, 2)
    for other, frames in ((category, 1), (Category("m", "1", SMALL), 2), (Category("m", "2", LARGE), 2)):
        assert not warmth.knows(other, frames)
    warmth.forget("n")
    assert warmth.knows(category, 2)
    warmth.forget("m")
    assert not warmth.knows(category, 2)


def test_a_restarted_triton_is_warmed_again():
    async def main():
        async with scene() as at:
            warmth = at.gateway._parts.inference.warmth
            seen = []
            at.triton.delay_s = lambda call: (
                seen.append(warmth.knows(Category("echo", "1", call.shape[1:]), call.rows)) or 0
            )
            await at.triton.restart()
            await until(lambda: len(seen) == 16)
            assert not any(seen)
            await until(lambda: at.gateway.ready)
            await until(lambda: warmth.knows(Category("echo", "1", LARGE), 8))

    asyncio.run(main())


def test_delays_are_asked_of_the_next_jobs():
    async def main():
        async with scene() as at:
            at.gateway.delay_jobs(2, 300)
            for _ in range(3):
                await at.send()
            found = [call.parameters.get(DELAY_PARAMETER) for call in at.triton.log("infer")]
            assert found[-3:] == [300, 300, None]
            assert not any(found[:-3])

    asyncio.run(main())


def test_delays_of_one_model_and_of_all():
    delays = DelayInjection()
    assert delays.take("a") == {}
    delays.ask(1, 10)
    delays.ask(1, 20, "a")
    assert [delays.take(model).get(DELAY_PARAMETER) for model in "baa"] == [10, 20, None]
    delays.ask(3, 10)
    delays.ask(0, 10)
    assert delays.take("a") == {}


def test_models_without_a_batch_axis_run_small_too():
    async def main():
        flat = Model("echo", max_batch_size=0)
        small, large = (
            make_profile(batches=[1], shapes=[shape], execution_ms=ms) for shape, ms in ((SMALL, 60.0), (LARGE, 120.0))
        )
        both = type(small)(entries=small.entries + large.entries)
        watcher = Watcher()
        async with gateway_on_stand_in(both, flat, observers=[watcher]) as (gateway, triton):
            record = await admitted(gateway, shape=LARGE, period_ms=1_000, deadline_ms=2_000, burst=4)
            at = Scene(gateway, triton, record, watcher)
            await at.send()
            await at.overrun()
            (picture,), (result,) = await at.send()
            assert np.array_equal(result.outputs["echo"], halved(picture))

    asyncio.run(main())
