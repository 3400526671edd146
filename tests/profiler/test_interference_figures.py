"""From timestamps to figures."""

import random

import pytest

from profiler.interference_figures import figures
from profiler.interference_plan import Load

MS = 1_000_000
NOW = 1_796_022_289_000_000_000  # wall time in ns does not fit a float


def back_to_back(clients: int, length_ms: int, count: int, start: int = NOW) -> list[tuple[int, int]]:
    """`count` requests of each of `clients`, the clients a millisecond apart."""
    return [
        (begin, begin + length_ms * MS)
        for client in range(clients)
        for n in range(count)
        for begin in [start + client * MS + n * length_ms * MS]
    ]


def test_throughput_counts_frames_of_all_clients_and_latency_is_of_one_request() -> None:
    requests = back_to_back(clients=3, length_ms=20, count=100)
    random.Random(1).shuffle(requests)
    found = figures(*zip(*requests, strict=True), Load("m", 3, 4))
    assert (found.p50_ms, found.p99_ms, found.max_ms) == (20, 20, 20)
    assert found.frames_per_s == pytest.approx(3 * 4 * 50, rel=1e-9)
    assert found.count == pytest.approx(270, abs=3)
    assert found.stable


def test_a_tenth_of_the_time_is_warm_up() -> None:
    slow = back_to_back(clients=1, length_ms=90, count=1)
    fast = back_to_back(clients=1, length_ms=5, count=200, start=NOW + 90 * MS)
    found = figures(*zip(*slow, *fast, strict=True), Load("m"))
    assert found.max_ms == 5
    assert found.frames_per_s == pytest.approx(200)


def test_few_long_requests_count_with_the_part_that_lies_within() -> None:
    """Eight clients, three requests of 900 ms each, a millisecond apart: 8 / 0.9 requests per second, not 21 / 2.4."""
    found = figures(*zip(*back_to_back(clients=8, length_ms=900, count=3), strict=True), Load("m", 8))
    assert found.frames_per_s == pytest.approx(8 / 0.9, rel=0.01)


def test_what_was_under_way_at_the_end_does_not_lower_the_throughput() -> None:
    """perf_analyzer tells nothing of the requests that it had not finished: here the second client's last one."""
    requests = back_to_back(clients=2, length_ms=100, count=20)[:-1]
    found = figures(*zip(*requests, strict=True), Load("m", 2))
    assert found.frames_per_s == pytest.approx(20, rel=0.002)


def test_halves_that_differ_are_not_settled() -> None:
    first = back_to_back(clients=1, length_ms=10, count=100)
    second = back_to_back(clients=1, length_ms=12, count=100, start=NOW + 1_000 * MS)
    assert not figures(*zip(*first, *second, strict=True), Load("m")).stable


@pytest.mark.parametrize(
    ("started", "ended", "reason"),
    [([], [], "no request was answered"), ([NOW], [NOW + MS], "no request began after the warm-up")],
    ids=["nothing", "one request"],
)
def test_too_little_to_measure_is_an_error(started: list[int], ended: list[int], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        figures(started, ended, Load("m"))
