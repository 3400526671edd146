"""Report 14: when the wall clock is stepped, nothing that is scheduled notices."""

import ast
import datetime
import random
import threading
import time
from pathlib import Path

from gateway.core.config import EngineConfig
from gateway.core.engine import Engine
from gateway.core.log import entry
from tests.api.served import FRAME, Served
from tests.core.factories import MS, make_profile, make_spec
from tests.field.support import steady
from tests.properties.rig import Rig

GATEWAY = Path(__file__).parents[2] / "gateway"
#: Where wall time is for display: log lines, and the date of a profile.
DISPLAY = {"telemetry/logs.py"}
WALL = {("time", "time"), ("time", "time_ns"), ("time", "localtime"), ("datetime", "now"), ("datetime", "utcnow")}


class Steps:
    """A wall clock that is 5 % fast, and jumps an hour on and ten seconds back in turn, at every look."""

    def __init__(self, real):
        self._real = real
        self._turn = 0

    def __call__(self):
        self._turn += 1
        return self._real() * 1.05 + (3_600 if self._turn % 2 else -10)


def run(seed):
    """A set of cameras with everything that happens to them; the log of decisions."""
    rng = random.Random(seed)
    profile = make_profile(a=[8, 9, 11], b=[15, 16])
    engine = Engine(profile, EngineConfig(admission_test="exact"))
    rig = Rig(engine, seed, missing=0.2, shorter=0.3)
    for n in range(6):
        spec = make_spec(rng.randint(20, 60), rng.randint(60, 200), model="ab"[n % 2], frames=20, start_in=n)
        rig.join(n * MS, f"s{n}", spec, None if n else 300 * MS)
    rig.run()
    return [entry(t_ns, action) for t_ns, action in rig.log]


def test_decisions_are_the_same_whatever_the_wall_clock_does(monkeypatch):
    """The order of dispatch, misses, and the ends of windows."""
    steady_log = run(7)
    assert len(steady_log) > 100
    monkeypatch.setattr(time, "time", Steps(time.time))
    monkeypatch.setattr(time, "time_ns", Steps(time.time_ns))
    assert run(7) == steady_log


def wall_calls(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name = (node.value.id, node.attr)
            if name in WALL:
                yield name


def test_the_code_asks_the_wall_clock_for_display_alone():
    asking = {
        str(path.relative_to(GATEWAY))
        for part in ("core", "runtime", "triton", "api", "telemetry", "sim")
        for path in (GATEWAY / part).rglob("*.py")
        if list(wall_calls(path))
    }
    assert asking <= DISPLAY
    assert list(wall_calls(GATEWAY / "clock.py")) == []


def test_streams_miss_nothing_while_it_is_stepped(length, monkeypatch):
    """The shipped application, whose libraries do read the wall clock."""
    with Served() as served, steady(served, FRAME, fps=20) as first, steady(served, FRAME, fps=10) as second:
        monkeypatch.setattr(time, "time", Steps(time.time))
        assert abs(time.time() - datetime.datetime.now(datetime.UTC).timestamp()) > 1
        threading.Event().wait(length(2.0, 60.0))
        monkeypatch.undo()
    for camera in (first, second):
        # A time-out that went by the wall clock would end every frame; a busy machine costs one now and then.
        assert camera.outcomes["met"] >= 0.95 * camera.outcomes.total() - 1, camera.outcomes
    assert first.outcomes["met"] > 15
