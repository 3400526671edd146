"""`framegate plan` with a memory budget: models that fit, that take turns, and that do neither."""

import json

import pytest
import typer
from typer.testing import CliRunner

from gateway.capacity.command import plan
from tests.properties.swap_rig import swap_profile

PLAN = """
- {name: gate, model: a, shape: [8, 8, 3], fps: 1, deadline_ms: 2000, swapping: true}
- {name: yard, model: b, shape: [8, 8, 3], fps: 1, deadline_ms: 3000, swapping: true}
- {name: door, model: c, shape: [8, 8, 3], fps: 10, deadline_ms: 300}
"""


@pytest.fixture
def report(tmp_path):
    """Run the plan; returns its JSON with the answers by name."""

    def run(*arguments, text=PLAN, load=100):
        (tmp_path / "plan.yaml").write_text(text)
        tables, sizes = {"a": [4], "b": [4], "c": [4]}, {"a": 60 << 20, "b": 50 << 20, "c": 40 << 20}
        profile = swap_profile(tables, dict.fromkeys("abc", load), unload=50, sizes=sizes)
        (tmp_path / "box.json").write_text(json.dumps(profile.to_dict()))
        app = typer.Typer()
        app.command()(plan)
        files = [str(tmp_path / "plan.yaml"), "--profile", str(tmp_path / "box.json"), "--json"]
        result = CliRunner().invoke(app, [*files, *arguments])
        return json.loads(result.output), result

    return run


def answers(report):
    return {stream["name"]: stream for stream in report["streams"]}


def test_without_a_budget_everything_fits(report):
    found, _ = report()
    assert found["admitted"] == 3
    assert all(stream["evidence"]["swap"] is None for stream in found["streams"])


def test_models_take_turns_where_their_streams_allow_it(report):
    found, result = report("--max-models", "2")
    assert (found["admitted"], result.exit_code) == (3, 0)
    told = answers(found)
    assert told["gate"]["evidence"]["swap"] is None  # it fits, when it is asked for
    assert told["door"]["evidence"]["swap"]["models"] == ["a", "b"]
    assert told["door"]["test"] == "sporadic"


def test_in_bytes_the_region_is_as_large_as_the_largest(report):
    found, _ = report("--memory-budget", "100MiB")
    assert answers(found)["door"]["evidence"]["swap"]["region"] == 60 << 20


def test_a_refusal_for_memory_says_what_is_missing_and_what_would_do(report):
    found, result = report("--max-models", "1", text=PLAN.replace(", swapping: true}\n- {name: d", "}\n- {name: d"))
    assert result.exit_code == 1
    yard = answers(found)["yard"]
    assert yard["reason"] == "memory"
    short = {"unit": "models", "needed": 1, "budget": 1, "free": 0, "held": {"a": 1}, "lost": 0}
    assert yard["evidence"]["memory"] == short
    assert {"field": "swapping", "value": True} in yard["counter_offers"]
    assert "a 1 model" in yard["explanation"]


def test_turns_that_would_come_too_late_are_refused(report):
    found, _ = report("--max-models", "2", load=900)
    door = answers(found)["door"]
    assert door["reason"] == "swap"
    assert door["evidence"]["swap"]["late_ms"] > 0


def test_turns_are_told_to_people_too(tmp_path, report):
    report("--max-models", "2")  # writes the files
    app = typer.Typer()
    app.command()(plan)
    files = [str(tmp_path / "plan.yaml"), "--profile", str(tmp_path / "box.json")]

    def told(*arguments):
        return " ".join(CliRunner().invoke(app, [*files, *arguments]).output.split())

    assert "a, b take turns in memory, up to " in told("--max-models", "2")
    assert "take turns" not in told()
    (tmp_path / "plan.yaml").write_text(PLAN.replace("3000, swapping: true", "3000"))
    assert "would be admitted with swapping true" in told("--max-models", "1")
    (tmp_path / "plan.yaml").write_text(PLAN.replace("2000, swapping: true", "2000"))
    refused = told("--max-models", "1")
    assert "where all their streams say `swapping: true`: those of a would have to as well" in refused
    assert "no single change" not in refused


def test_no_budget_at_all(report):
    for text in ("0", "lots"):
        with pytest.raises(json.JSONDecodeError):
            report("--memory-budget", text)


def test_one_budget_at_a_time(tmp_path):
    app = typer.Typer()
    app.command()(plan)
    (tmp_path / "box.json").write_text("{}")
    (tmp_path / "plan.yaml").write_text(PLAN)
    arguments = [str(tmp_path / "plan.yaml"), "--profile", str(tmp_path / "box.json")]
    result = CliRunner().invoke(app, [*arguments, "--max-models", "1", "--memory-budget", "5"])
    assert result.exit_code == 2
    assert "not both" in result.output
