"""M of the sporadic test: by example and against every way to spread frames over windows."""

import itertools
import random

import numpy as np
import pytest

from gateway.core.profile import split
from gateway.core.work_bound import work_bound


def most(table, n1, k, n):
    return int(work_bound(table, n1).most(np.array([k]), np.array([n]))[0])


def by_trying(table, n1, k, n):
    works = [split(table, x) for x in range(n1 + 1)]
    return max(sum(works[x] for x in sizes) for sizes in itertools.product(range(n1 + 1), repeat=k) if sum(sizes) <= n)


def test_an_even_spread_is_the_worst_of_a_concave_time():
    table = (0, 10, 14, 16)
    assert most(table, 3, 2, 4) == 28
    assert most(table, 3, 2, 5) == 30
    assert most(table, 3, 2, 99) == 32, "no window holds more than n1"
    assert most(table, 3, 5, 3) == 30
    assert most(table, 3, 0, 7) == 0


def test_full_windows_are_the_worst_of_a_convex_time():
    assert most((0, 1, 3, 9), 3, 3, 6) == 18


def test_a_window_over_the_largest_batch_is_split():
    # 3 frames: 14 + 10; two windows of 3 and 2 frames.
    assert most((0, 10, 14), 3, 2, 5) == 24 + 14
    assert most((0, 10, 14), 3, 2, 4) == 34  # 3 and 1, not 2 and 2


@pytest.mark.parametrize("seed", range(60))
def test_it_is_exact_for_few_windows(seed):
    rng = random.Random(seed)
    table = tuple(itertools.accumulate([0, *(rng.randint(0, 9) for _ in range(rng.randint(1, 4)))]))
    n1, k = rng.randint(1, 6), rng.randint(1, 4)
    for n in range(k * n1 + 1):
        tried = by_trying(table, n1, k, n)
        assert tried <= most(table, n1, k, n) <= tried + k, (table, n1, k, n)


@pytest.mark.parametrize("seed", range(20))
def test_it_is_a_bound_for_many_windows(seed):
    """Beyond the dynamic programme: no less than the best of three simple spreads, no less than for fewer windows."""
    rng = random.Random(seed)
    table = tuple(itertools.accumulate([0, *(rng.randint(0, 9) for _ in range(rng.randint(1, 8)))]))
    n1 = rng.choice([3, 40, 100, 1_500])
    bound = work_bound(table, n1)
    k = np.arange(1, 200)
    for n in (k * n1 // 3, k * n1 // 2 + 1, k * n1):
        got = bound.most(k, n)
        for some, frames, upper in zip(k.tolist(), n.tolist(), got.tolist(), strict=True):
            full, rest = divmod(frames, n1)
            even, more = divmod(frames, some)
            assert upper >= full * split(table, n1) + split(table, rest)
            assert upper >= (some - more) * split(table, even) + more * split(table, even + 1 if more else even)
        if n1 <= 40:
            assert (np.diff(got) >= -n1 * 9).all()


def test_very_wide_windows_are_cheap_and_still_bounded():
    table = (0, 10, 14, 15)
    for n1 in (1_025, 99_999):
        assert most(table, n1, 1, n1) >= split(table, n1)
        assert most(table, n1, 1, n1) <= split(table, n1) + 10
        assert most(table, n1, 7, 3) >= 30
