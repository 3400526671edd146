"""How often, and how long, the profiler lets the machine go idle between samples."""

from profiler.pauses import LONGEST_S, SHORTEST_S, Pauses


def pauses_of(execution_s: float, samples: int) -> list[float]:
    pauses = Pauses()
    return [pauses.next_s(execution_s) for _ in range(samples)]


def test_one_sample_in_ten_comes_after_a_pause_at_least() -> None:
    made = pauses_of(0.0, 200)
    assert [number for number, pause_s in enumerate(made) if pause_s] == list(range(9, 200, 10))
    assert all(SHORTEST_S <= pause_s <= LONGEST_S for pause_s in made if pause_s)
    assert len(set(made)) == 21, "pauses are of many lengths"


def test_pauses_of_a_quick_profile_cost_less_than_a_third() -> None:
    for execution_s in (0.006, 0.02, 0.2):
        made = pauses_of(execution_s, 50)
        assert sum(made) <= 0.3 * 55 * execution_s  # with the five of the warm-up
        assert sum(pause_s > 0 for pause_s in made) >= 5


def test_after_long_executions_every_sample_has_one() -> None:
    assert sum(pause_s > 0 for pause_s in pauses_of(0.3, 50)) >= 48
