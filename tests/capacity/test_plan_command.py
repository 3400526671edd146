"""`framegate plan`: what is printed, and the status."""

import json

import pytest
import typer
from matplotlib.figure import Figure
from typer.testing import CliRunner

from gateway.capacity.charts import _write, utilization_chart
from gateway.capacity.command import plan
from gateway.capacity.plan_file import read_plan
from gateway.capacity.plan_show import Result
from gateway.capacity.planning import answer_plan
from gateway.core.config import EngineConfig
from tests.core.factories import make_profile

PLAN = """
- {name: gate, model: m, shape: [8, 8, 3], fps: 10, deadline_ms: 100, count: 3}
- {name: yard, model: m, shape: [8, 8, 3], fps: 5, deadline_ms: 200}
"""

#: Not in the profile, so that its share is not known.
OTHER = "model: x, shape: [8, 8, 3], fps: 10, deadline_ms: 20"


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
        f"{kind['fits']} streams like gate fit, with all others admitted first. One more:"
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
    assert "not promised" in output
    assert "deadlines decide what fits" in output
    assert "█" in output


FULL = """
- {name: gate, model: m, shape: [8, 8, 3], fps: 10, deadline_ms: 100, count: 3}
- {name: door, model: m, shape: [8, 8, 3], fps: 10, deadline_ms: 20}
"""


def test_what_a_refused_stream_could_ask_for_instead_is_said_with_and_without_how_many(run, files):
    (files / "plan.yaml").write_text(FULL)
    plain = run("plan.yaml", "--profile", "box.json")
    asked = run("plan.yaml", "--profile", "box.json", "--how-many", "door")
    assert "0 streams like door fit, with all others admitted first. The first:" in asked.output
    for result in (plain, asked):
        assert result.exit_code == 1
        assert "  would be admitted with deadline_ms" in result.output


def test_that_nothing_else_would_be_admitted_is_said_if_it_was_searched(run, files):
    (files / "plan.yaml").write_text(FULL)
    says = "no single change of rate, deadline or shape would be admitted"
    full = ("plan.yaml", "--profile", "box.json", "--time-scale", 1_000 / 12)
    refused = [stream for stream in json.loads(run(*full, "--json").output)["streams"] if not stream["admitted"]]
    without = [stream for stream in refused if not stream["counter_offers"]]
    assert without
    assert says in run(*full).output
    assert says not in run(*full, "--no-offers").output


def test_one_and_as_many_as_fit(run, files):
    (files / "plan.yaml").write_text("- {model: m, name: a, shape: [8, 8, 3], fps: 10, deadline_ms: 100, count: max}")
    (files / "one.json").write_text(json.dumps(make_profile(m=[20]).to_dict()))
    output = run("plan.yaml", "--profile", "one.json").output
    assert "1 (as many as fit)" in output
    assert "1 stream like a fits. One more:" in output


def test_names_of_profiles_do_not_break(run, files, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for folder in ("a_rather_long_folder", "another"):
        (files / folder).mkdir()
        data = make_profile(m=[10, 12, 14]).to_dict() | {"device": "a device with a name of many words, really many"}
        (files / folder / "the_profile_of_the_device.json").write_text(json.dumps(data))
    long = "a_rather_long_folder/the_profile_of_the_device.json"
    lines = run("plan.yaml", "--profile", long, "--profile", "box.json").output.splitlines()
    assert any(line.startswith("the_profile_of_the_device ") for line in lines)
    same = ("--profile", long, "--profile", "another/the_profile_of_the_device.json")
    lines = run("plan.yaml", *same).output.splitlines()
    assert any(line.startswith("a_rather_long_folder/ ") for line in lines)


def test_sentences_wrap_between_words(run, files, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = run("plan.yaml", "--profile", "slow.json").output.splitlines()
    assert any(line.startswith("gate-") for line in lines)
    assert max(map(len, lines)) <= 80


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


def test_the_chart_shows_what_was_refused(files, monkeypatch):
    drawn = []
    monkeypatch.setattr("gateway.capacity.charts._save", lambda figure, path: drawn.append(figure))
    (files / "plan.yaml").write_text(FULL.replace("model: m, shape: [8, 8, 3], fps: 10, deadline_ms: 20", OTHER))
    items = read_plan(files / "plan.yaml")
    profile = make_profile(m=[10, 12, 14])
    result = Result.of(files / "box.json", profile, 1.0, items, answer_plan(items, profile, EngineConfig()))
    utilization_chart(files / "use.png", [result])
    (axes,) = drawn[0].axes
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert "door (refused)" in labels
    assert axes.get_title()


def test_text_on_the_chart_can_be_read():
    axes = Figure().subplots()
    for colour in ("C0", "C7", "C8", "#eeeeee"):
        _write(axes, 0, 0, "5%", colour)
    assert [text.get_color() for text in axes.texts] == ["white", "white", "black", "black"]


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
