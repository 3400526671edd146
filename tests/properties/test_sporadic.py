"""What the sporadic test admits misses nothing, whatever the cameras do within their contracts."""

import random
from dataclasses import replace
from itertools import accumulate

from hypothesis import event, given, settings
from hypothesis import strategies as st

from gateway.core.admission import plan, widen
from tests.core.factories import MS, make_profile, make_spec
from tests.properties.windowed_edf import MOODS, Device, critical

MODELS = "abc"


def small_profile(rng):
    """Batches that gain, batches that do not, and figures that are not concave."""
    return make_profile(
        **{model: sorted(rng.randint(1, 5) for _ in range(rng.choice([1, 2, 3, 4]))) for model in MODELS}
    )


def some_spec(rng, *, frames=None):
    return make_spec(
        rng.randint(8, 60),
        rng.randint(8, 80),
        model=rng.choice(MODELS),
        start_in=rng.randint(0, 20),
        burst=rng.choice([1, 1, 1, 2]),
        jitter_ns=rng.choice([0, 0, 2, 7, 20, 90]) * MS,
        frames=frames,
    )


def legal_run(rng, streams, length=700):
    """Streams join one after another, in the middle of a busy run; some leave, and windows grow when they may."""
    device = Device(small_profile(rng), rng, admission_test="sporadic")
    if rng.random() < 0.5:
        device.best_effort = (make_spec(model=rng.choice(MODELS)).category(),)
    moods = rng.choice([MOODS, ("focus",)])
    focus = rng.randint(60, 400) * MS
    device.pokes = sorted(focus + t for t in (-MS, -1, 0))
    admitted = shrunk = grown = 0
    for n in range(streams):
        spec = some_spec(rng, frames=rng.choice([None, None, rng.randint(1, 30)]))
        answer = plan(device.record(), spec, f"s{n}")
        assert answer.verdict.test == "sporadic"
        assert answer.slots is None
        if answer.verdict.admitted:
            admitted += 1
            shrunk += any(window.changed for window in answer.windows)
            device.join(f"s{n}", spec, answer, length * MS, focus + rng.choice([0, 0, 1, MS]), moods)
        if rng.random() < 0.2 and device.cameras:
            rng.choice(list(device.cameras.values())).gone = True
            answer = widen(device.record())
            if answer.verdict.admitted and any(window.changed for window in answer.windows):
                grown += 1
                device.widen(answer)
        device.run(device.now + rng.choice([0, 0, 1, 7 * MS, rng.randint(0, 60 * MS)]))
    device.run(2 * length * MS)
    assert not device.late, device.late[:3]
    return admitted, shrunk, grown, device.jobs


@settings(max_examples=1_500)
@given(st.integers(0, 2**32), st.integers(2, 8))
def test_an_admitted_set_misses_nothing_under_any_legal_arrivals(seed, streams):
    """Phases, drift, jitter, bursts, gaps, missing frames, best effort, early dispatch; joins that shrink windows."""
    admitted, shrunk, grown, jobs = legal_run(random.Random(seed), streams)
    event(f"{min(admitted, 5)} admitted")
    event("shrunk" if shrunk else "not shrunk")
    event("grown" if grown else "not grown")
    event("busy" if jobs > 20 else "quiet")


@settings(max_examples=600)
@given(st.integers(0, 2**32))
def test_the_critical_instant_is_survived(seed):
    """All windows end at one instant, full, after the longest silence; a job out of order has just begun."""
    admitted, late, (worst, promised) = critical_run(random.Random(seed))
    event(f"{min(admitted, 6)} admitted")
    assert not late
    assert worst <= promised


def critical_run(rng):
    device = Device(small_profile(rng), rng, nasty=False, admission_test="sporadic")
    joint = 600 * MS  # a multiple of every window
    last, promised = None, 0
    for n in range(12):
        window = rng.choice([4, 5, 6, 10, 12, 15, 20])
        spec = make_spec(
            rng.randint(6, 60),
            2 * window,
            model=rng.choice(MODELS),
            burst=rng.choice([1, 1, 2]),
            jitter_ns=rng.choice([0, 3, 10, 40, 90]) * MS,
            frames=rng.choice([None, None, rng.randint(1, 9)]),
        )
        answer = plan(device.record(), spec, f"s{n}")
        if answer.verdict.admitted:
            device.admit(f"s{n}", spec, answer)
            last, promised = f"s{n}", answer.verdict.worst_latency_ns
    # Streams that share a category fill its window, not their own.
    for name, camera in device.cameras.items():
        width = device.windows[camera.spec.category()].width
        device.expect(name, critical(replace(camera.spec, deadline_ns=2 * width), joint))
    device.run(joint - 1)
    device.free = joint - 1 + device.blocking
    device.run(joint + 1_500 * MS)
    return len(device.cameras), device.late, (device.worst.get(last, 0), promised)


@settings(max_examples=800)
@given(st.integers(0, 2**32))
def test_windows_that_shrink_over_waiting_frames_lose_none(seed):
    """Many frames wait in a wide window when a stream with a short deadline joins their category."""
    admitted, shrunk, late = shrinking_run(random.Random(seed))
    event(f"{min(admitted, 3)} admitted, {min(shrunk, 2)} shrunk")
    assert not late


def every_frame(spec, start, until):
    """On the grid, from `start` on."""
    frames = [t for t in range(start, until, spec.period_ns) for _ in range(spec.burst)]
    return frames[: spec.frames]


def shrinking_run(rng):
    device = Device(
        make_profile(
            a=list(accumulate([rng.randint(1, 3), *(rng.choice([0, 1, 1, 2]) for _ in range(8))])),
            b=[rng.randint(1, 4)],
        ),
        rng,
        nasty=rng.random() < 0.3,
        admission_test="sporadic",
    )
    admitted = shrunk = 0
    for n in range(6):
        wide = n < 2
        spec = make_spec(
            rng.randint(5, 9) if wide else rng.randint(20, 90),
            rng.randint(60, 120) if wide else rng.randint(10, 50),
            model="a" if wide or rng.random() < 0.6 else "b",
            frames=rng.randint(2, 9) if wide else None,
            burst=rng.choice([1, 3]) if wide else 1,
        )
        answer = plan(device.record(), spec, f"s{n}")
        if answer.verdict.admitted:
            admitted += 1
            shrunk += any(window.changed for window in answer.windows)
            device.admit(f"s{n}", spec, answer)
            device.expect(f"s{n}", every_frame(spec, device.now, 400 * MS))
        device.run(device.now + rng.choice([0, 0, 10, rng.randint(0, 50)]) * MS)
    device.run(900 * MS)
    return admitted, shrunk, device.late


def test_without_the_blocking_it_would_admit_sets_that_miss(monkeypatch):
    monkeypatch.setattr("gateway.core.sporadic._blocking_ns", lambda *_: 0)
    device = Device(make_profile(a=[8], b=[3]), random.Random(0), nasty=False, admission_test="sporadic")
    for name, spec in {"a": make_spec(500, 100, model="a"), "b": make_spec(100, 20, model="b")}.items():
        answer = plan(device.record(), spec, name)
        assert answer.verdict.admitted
        device.admit(name, spec, answer)
        device.run(1)
    # A is released at 50 and runs to 58. B's window ends 1 ns after A has begun: due 60, it ends at 61.
    device.expect("a", [1])
    device.expect("b", [40 * MS + 1])
    device.run(200 * MS)
    assert [frame.stream_id for frame in device.late] == ["b"]
