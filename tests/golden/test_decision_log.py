"""The decisions on a small fixed trace, word for word.

A difference is either a fault or a decision that was meant to change: then write the file anew with
``python -m tests.golden.test_decision_log`` and read the difference.
"""

import json
from pathlib import Path

import pytest

from gateway.core.config import EngineConfig
from gateway.core.profile import Profile
from gateway.sim.driver import simulate
from gateway.sim.trace import read_trace

DATA = Path(__file__).parent / "data"
MODES = {"early": EngineConfig(), "joints": EngineConfig(early_dispatch=False)}


def decide(config):
    profile = Profile.from_dict(json.loads((DATA / "profile.json").read_text()))
    trace = read_trace((DATA / "trace.jsonl").read_text().splitlines(), profile)
    log = []
    simulate(trace, profile, config, log=log.append)
    return [json.dumps(line) for line in log]


@pytest.mark.parametrize("mode", MODES)
def test_decisions_are_as_recorded(mode):
    assert decide(MODES[mode]) == (DATA / f"decisions_{mode}.jsonl").read_text().splitlines()


if __name__ == "__main__":
    for name, config in MODES.items():
        (DATA / f"decisions_{name}.jsonl").write_text("\n".join(decide(config)) + "\n")
