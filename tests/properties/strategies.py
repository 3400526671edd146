"""Small integer sets: streams, tables and traces on a 1 ms grid, where ties are frequent."""

from hypothesis import strategies as st

from gateway.core.config import EngineConfig
from gateway.core.plan_state import AdmissionState, StreamPhase, WindowState
from gateway.core.types import Frame, Job, JobDeadline, OnLate
from tests.core.factories import MS, make_category, make_profile, make_spec

MODELS = "abc"


@st.composite
def profiles(draw, top=6):
    """Three models with batches up to 4; measurements that fall with the batch are among them."""
    return make_profile(**{model: draw(st.lists(st.integers(1, top), min_size=1, max_size=4)) for model in MODELS})


SOME_FRAMES = st.integers(1, 8)
DROP = st.just(OnLate.DROP)


@st.composite
def specs(draw, frames=SOME_FRAMES, on_late=DROP, slowest=50):
    return make_spec(
        draw(st.integers(3, slowest)),
        draw(st.integers(6, 60)),
        model=draw(st.sampled_from(MODELS)),
        frames=draw(frames),
        start_in=draw(st.integers(0, 30)),
        on_late=draw(on_late),
    )


def traces(most=7, **fields):
    """Pairs of registration instant (ms) and stream, in order of time."""
    pairs = st.lists(st.tuples(st.integers(0, 40), specs(**fields)), min_size=2, max_size=most)
    return pairs.map(lambda streams: sorted(streams, key=lambda pair: pair[0]))


def configs(**fixed):
    return st.fixed_dictionaries(
        {"early_dispatch": st.booleans(), "job_deadline": st.sampled_from(JobDeadline)}
        | {name: st.just(value) for name, value in fixed.items()}
    )


# ---------------------------------------------------------------- recorded states

NOW = 1_000 * MS
_JITTER = st.sampled_from([0, 0, 0, 1, 2, 5, 9, 30])
_BURST = st.sampled_from([1, 1, 1, 2, 3])
_BUSY = st.sampled_from([0, 0, 1, 3, 7])
_PERIODS = st.integers(3, 50)
_WIDTHS = st.integers(3, 25)
#: Periods and windows with small common multiples, so that schedules repeat soon.
ROUND = st.sampled_from([4, 5, 6, 8, 10, 12, 15, 20])


@st.composite
def spec_of_any_kind(draw, frames=SOME_FRAMES, periods=_PERIODS, widths=_WIDTHS):
    """A stream with bursts and jitter."""
    return make_spec(
        draw(periods),
        2 * draw(widths) + draw(st.integers(0, 1)),
        model=draw(st.sampled_from(MODELS)),
        frames=draw(frames),
        start_in=draw(st.integers(0, 30)),
        burst=draw(_BURST),
        jitter_ns=draw(_JITTER) * MS,
    )


@st.composite
def states(draw, frames=SOME_FRAMES, most=4, periods=_PERIODS, widths=_WIDTHS, **config):
    """Any state that an engine could record: streams in mid-course, half-filled windows, ready jobs, a busy device."""
    profile = draw(profiles())
    config = EngineConfig(**{"job_deadline": draw(st.sampled_from(JobDeadline)), **config})
    windows, ready, next_job = [], [], 0
    for model in draw(st.lists(st.sampled_from(MODELS), min_size=1, max_size=3, unique=True)):
        category = make_category(model)
        largest = profile.max_batch(category)
        width = draw(widths)
        joint = draw(st.integers(1, width))
        narrowest = draw(st.integers(min(joint, width), width))
        opened = joint - narrowest
        waiting = []
        for size in draw(st.lists(st.integers(1, largest), max_size=2)) if opened < 0 else []:
            frames_in = []
            for n in range(size):
                arrival = draw(st.integers(opened, 0))
                due = arrival + 2 * narrowest + draw(st.integers(0, 9))
                frames_in.append(Frame(f"w{model}{n}", n, NOW + arrival * MS, NOW + due * MS, next_job))
            waiting.append(tuple(frames_in))
            next_job += 1
        windows.append(WindowState(category, width * MS, narrowest * MS, NOW + joint * MS, tuple(waiting), width * MS))
    for model in draw(st.lists(st.sampled_from([w.category.model for w in windows]), max_size=2)):
        category = make_category(model)
        size = draw(st.integers(1, profile.max_batch(category)))
        late = draw(st.integers(0, 5))
        held = tuple(Frame(f"r{model}{n}", n, NOW - 9 * MS, NOW + 30 * MS, next_job) for n in range(size))
        due = NOW + draw(st.integers(4, 50)) * MS
        ready.append(Job(next_job, category, held, NOW - late * MS, due, profile.execution_ns(category, size)))
        next_job += 1
    ready.sort(key=lambda job: (job.deadline_ns, job.release_ns, job.id))
    planned = tuple(NOW + draw(st.integers(-3, 12)) * MS for _ in ready) if draw(st.booleans()) else ()
    chosen = draw(st.lists(st.sampled_from(windows), max_size=most))
    streams = [draw(_phases(window, f"s{n}", frames, periods)) for n, window in enumerate(chosen)]
    return AdmissionState(
        now_ns=NOW,
        free_ns=NOW + draw(_BUSY) * MS,
        ready=tuple(ready),
        windows=tuple(windows),
        streams=tuple(streams),
        profile=profile,
        config=config,
        planned_ns=planned,
    )


@st.composite
def _phases(draw, window, name, frames, periods):
    burst, jitter, period = draw(_BURST), draw(_JITTER), draw(periods)
    remaining = draw(frames)
    overdue = draw(st.sampled_from([0, 0, 0, 1, 2]))
    overdue = min(overdue, burst) if remaining is None else min(overdue, burst, remaining)
    return StreamPhase(
        stream_id=name,
        category=window.category,
        period_ns=period * MS,
        deadline_ns=2 * window.window_ns + draw(st.integers(0, 20)) * MS,
        next_ns=NOW + draw(st.integers(-jitter, 30)) * MS,
        remaining=remaining,
        burst=burst,
        jitter_ns=jitter * MS,
        group_left=draw(st.integers(1, burst)),
        overdue=overdue,
    )
