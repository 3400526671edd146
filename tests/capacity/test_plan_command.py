"""`framegate plan`: what is printed, and the status."""

import json

import pytest
import typer
from typer.testing import CliRunner

from gateway.capacity.command import plan
from tests.core.factories import make_profile

PLAN = """
- {name: gate, model: m, shape: [8, 8, 3], fps: 10, deadline_ms: 100, count: 3}
- {name: yard, model: m, shape: [8, 8, 3], fps: 5, deadline_ms: 200}
"""


@pytest.fixture
def files(tmp_path):
    """A plan and three profiles, of which the last is too slow."""
    (tmp_path / "plan.yaml").write_text(PLAN)
    for name, times in (("box", [10, 12, 14]), ("gpu", [1, 1.2, 1.4]), ("slow", [90, 92])):
        data = make_profile(m=times).to_dict() | {"device": f"a {name}"}
        (tmp_path / f"{name}.json").write_text(json.dumps(data))
    return tmp_path


@pytest.fixture
def run(files, monkeypatch):
    monkeypatch.chdir(files)
    monkeypatch.setenv("COLUMNS", "120")

    def run(*arguments):
        app = typer.Typer()
        app.command()(plan)
        return CliRunner().invoke(app, [str(argument) for argument in arguments])

    return run


def test_json_is_of_the_layout_that_is_promised(run):
    result = run("plan.yaml", "--profile", "box.json", "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.output)
    assert (report["admitted"], report["rejected"], len(report["streams"])) == (4, 0, 4)
    assert 0 < report["utilization"] < 1
    assert report["utilization"] == pytest.approx(sum(share["share"] for share in report["shares"]))
    first = report["streams"][0]
    assert {"name", "admitted", "test", "reason", "worst_latency_ms", "counter_offers"} <= set(first)
    assert (first["name"], first["admitted"], first["reason"], first["counter_offers"]) == ("gate-1", True, None, [])
    assert 0 < first["worst_latency_ms"] <= 100
    assert (report["profile"], report["time_scale"], report["device"]) == ("box.json", 1.0, "a box")


def test_refusals_carry_evidence_and_the_status_is_1(run):
    result = run("plan.yaml", "--profile", "slow.json", "--json")
    assert result.exit_code == 1
    report = json.loads(result.output)
    refused = [stream for stream in report["streams"] if not stream["admitted"]]
    assert report["rejected"] == len(refused) > 0
    assert all(stream["explanation"] and stream["evidence"]["reason"] == stream["reason"] for stream in refused)


def test_a_slower_device(run):
    scaled = json.loads(run("plan.yaml", "--profile", "box.json", "--json", "--time-scale", 1.2).output)
    plain = json.loads(run("plan.yaml", "--profile", "box.json", "--json").output)
    assert scaled["utilization"] == pytest.approx(1.2 * plain["utilization"])
    assert run("plan.yaml", "--profile", "box.json", "--time-scale", 20).exit_code == 1


def test_time_is_added_for_each_dispatch(run):
    more = json.loads(run("plan.yaml", "--profile", "gpu.json", "--json", "--dispatch-overhead-ms", 0.7).output)
    plain = json.loads(run("plan.yaml", "--profile", "gpu.json", "--json").output)
    assert more["admitted"] == plain["admitted"] == 4
    # 1.4 ms for a batch of three becomes 2.1.
    assert more["utilization"] == pytest.approx(1.5 * plain["utilization"])


def test_the_test_can_be_chosen(run):
    streams = json.loads(run("plan.yaml", "--profile", "box.json", "--json").output)["streams"]
    assert {stream["test"] for stream in streams} == {"sporadic"}
    exact = run("plan.yaml", "--profile", "box.json", "--json", "--admission-test", "exact")
    assert {stream["test"] for stream in json.loads(exact.output)["streams"]} == {"hyperperiod"}
    assert run("plan.yaml", "--profile", "box.json", "--admission-test", "never").exit_code == 2


def test_how_many_fit(run):
    result = run("plan.yaml", "--profile", "box.json", "--how-many", "gate", "--json")
    assert result.exit_code == 0
    (kind,) = json.loads(result.output)["how_many"]
    assert (kind["name"], kind["fits"] > 3, kind["next"]["admitted"]) == ("gate", True, False)
    assert (
        f"{kind['fits']} streams like gate fit. One more:"
        in run("plan.yaml", "--profile", "box.json", "--how-many", "gate").output
    )
    assert run("plan.yaml", "--profile", "box.json", "--how-many", "door").exit_code == 2


def test_which_profile_suffices(run):
    profiles = ("--profile", "slow.json", "--profile", "box.json", "--profile", "gpu.json")
    result = run("plan.yaml", *profiles, "--json")
    assert result.exit_code == 0
    report = json.loads(result.output)
    assert report["suffices"] == ["box.json", "gpu.json"]
    assert [one["profile"] for one in report["profiles"]] == ["slow.json", "box.json", "gpu.json"]
    output = run("plan.yaml", *profiles).output
    assert "Suffices: box.json, gpu.json." in output
    assert "Suffices: none of them." in run("plan.yaml", *profiles, "--time-scale", 100).output


def test_tables_and_bars(run):
    output = run("plan.yaml", "--profile", "box.json").output
    assert "gate" in output
    assert "3 of 3" in output
    assert "headroom" in output
    assert "█" in output


def test_a_model_that_is_not_profiled_is_told_what_is(run, files):
    (files / "plan.yaml").write_text("- {model: x, shape: [8, 8, 3], fps: 1, deadline_ms: 100}")
    result = run("plan.yaml", "--profile", "box.json")
    assert result.exit_code == 1
    assert "not_profiled" in result.output
    assert "profiled: m/1 [8, 8, 3] UINT8, batches up to 3" in result.output
    (stream,) = json.loads(run("plan.yaml", "--profile", "box.json", "--json").output)["streams"]
    assert stream["profiled"] == ["m/1 [8, 8, 3] UINT8, batches up to 3"]
    (files / "empty.json").write_text(json.dumps(make_profile().to_dict()))
    assert "the profile is empty" in run("plan.yaml", "--profile", "empty.json").output


def test_the_chart_is_a_picture(run, files):
    (files / "plan.yaml").write_text(PLAN.replace("yard", "yard of $5 & more"))
    assert run("plan.yaml", "--profile", "box.json", "--profile", "gpu.json", "--chart", "use.png").exit_code == 0
    assert (files / "use.png").read_bytes().startswith(b"\x89PNG")
    assert run("plan.yaml", "--profile", "slow.json", "--time-scale", 50, "--chart", "empty.png").exit_code == 1
    assert (files / "empty.png").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("none.yaml", "--profile", "box.json"), "error: none.yaml: No such file"),
        (("box.json", "--profile", "box.json"), "error: box.json: unknown field 'schema'"),
        (("plan.yaml", "--profile", "none.json"), "error: none.json"),
        (("plan.yaml", "--profile", "plan.yaml"), "error: plan.yaml"),
        (("plan.yaml", "--profile", "box.json", "--chart", "none/use.png"), "error: the chart cannot be written"),
        (("plan.yaml", "--profile", "box.json", "--chart", "use.xyz"), "error: the chart cannot be written"),
        (("plan.yaml", "--profile", "box.json", "--time-scale", "0"), "0.01"),
        (("plan.yaml",), "--profile"),
    ],
)
def test_bad_input_is_status_2(run, arguments, says):
    result = run(*arguments)
    assert (result.exit_code, result.exception.__class__) == (2, SystemExit)
    assert says in result.output
