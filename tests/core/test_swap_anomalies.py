"""Swaps decided at run time are not sustainable (theory, section 5): less work can make a set miss. Times are ticks.

Each example meets all its deadlines at the planned times under EDF that skips what is not in memory, LRU and loads on
the first frame; something is then shorter, and a job is late. The smallest that a random search found; of 41,297 sets
that meet their deadlines, a shorter load breaks 1,090, a shorter execution 668. `tests.properties.test_swapping` shows
the same of the swap region, where nothing breaks.
"""

from dataclasses import replace

from tests.core.lru_edf import Work, run


def test_a_shorter_load_lets_the_wrong_job_begin():
    jobs = [Work("c", 2, 5, 33, 2), Work("a", 38, 38, 57, 6), Work("b", 40, 43, 81, 12)]
    planned = {"a": 11, "b": 11, "c": 5}
    assert run(jobs, planned, room=2, resident="ba") == [-22, 0, -12]
    # b is there at 50 and not at 53, a at 51: the long job of b begins first.
    assert run(jobs, planned | {"b": 8}, room=2, resident="ba") == [-22, 11, -19]


def test_a_shorter_execution_lets_the_wrong_job_begin():
    jobs = [Work("b", 29, 29, 46, 7), Work("a", 39, 41, 53, 11), Work("a", 33, 39, 69, 12)]
    loads = {"a": 3, "b": 3, "c": 5}
    assert max(run(jobs, loads, room=2, resident="ac")) <= 0
    shorter = [replace(jobs[0], execution=6), *jobs[1:]]
    assert run(shorter, loads, room=2, resident="ac") == [-6, 10, -17]


def test_a_load_on_the_first_frame_is_in_the_way_of_one_that_is_needed():
    jobs = [Work("a", 17, 20, 46, 9), Work("c", 18, 18, 30, 10), Work("b", 17, 23, 63, 11)]
    loads = {"a": 8, "b": 8, "c": 3}
    assert max(run(jobs, loads, room=2, resident="bc", prefetch=False)) <= 0
    assert run(jobs, loads, room=2, resident="bc") == [-10, 27, -16]
