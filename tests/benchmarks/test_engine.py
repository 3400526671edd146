"""The benchmark of the engine measures what it says: frames that are taken, and jobs that start the next one."""

from pathlib import Path

import pytest
import uvloop

from benchmarks import driver, engine
from gateway.core.types import NS_PER_S

SPECS = engine._specs(4, 1000, 2000, None)


def posted(most, log=None, rounds=2):
    async def run():
        posting = driver.Posting(engine._profile(0.2, most), SPECS, log)
        found = [posting.round() for _ in range(rounds)]
        posting.close()
        return found, posting._driver.engine.snapshot()

    return uvloop.run(run())


@pytest.mark.parametrize(("most", "jobs"), [(1, 3), (8, 3)])
def test_every_frame_is_taken_and_every_job_but_the_last_starts_another(most, jobs):
    found, view = posted(most)
    assert [(len(frames), len(ends)) for frames, ends in found] == [(4, jobs)] * 2
    assert [(stream.accepted, dict(stream.outcomes)["met"], stream.in_flight) for stream in view.streams] == [
        (2, 2, 0)
    ] * 4
    assert all(figure > 0 for round_ in found for part in round_ for figure in part)


def test_decisions_are_logged_where_that_is_measured(tmp_path):
    log = Path(tmp_path) / "log.jsonl"
    posted(1, log)
    lines = log.read_text().splitlines()
    assert sum('"action":"deliver_frames"' in line for line in lines) == 8


def test_figures_have_a_name_each():
    figures = driver.figures(lambda most: engine._profile(0.2, most), SPECS, rounds=2)
    names = ("driver_frame", "driver_job", "driver_job_of_8")
    assert list(figures) == [f"{name}{suffix}" for suffix in ("_us", "_logged_us") for name in names]
    assert all(figure > 0 for figure in figures.values())


def test_streams_keep_their_contracts_in_a_round():
    assert max(spec.period_ns for spec in engine._specs(32, 1000, 2000, None)) <= driver.PERIOD_NS
    assert driver.PERIOD_NS < 10 * NS_PER_S


def test_the_engine_is_measured_with_and_without_a_plan():
    assert engine.handle_frame_us(streams=2, rounds=2) > 0
    assert engine.handle_frame_us(streams=2, rounds=2, frames=10) > 0
    assert engine.handle_job_us(rounds=1) > 0
    assert engine.shipped_ahead_ns() > 0
    assert engine.handle_frame_us(streams=2, rounds=2, send_ahead_ns=engine.shipped_ahead_ns()) > 0
    assert engine.handle_job_ahead_us(rounds=1) > 0, "some are sent ahead"
    assert engine.simulator_frames_per_s(streams=2, seconds=1) > 0
