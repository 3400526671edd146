"""Small integer sets: streams, tables and traces on a 1 ms grid, where ties are frequent."""

from hypothesis import strategies as st

from gateway.core.types import JobDeadline, OnLate
from tests.core.factories import make_profile, make_spec

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
