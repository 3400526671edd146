"""Decision logs read back: figures by hand, logs that are damaged, and the command."""

import json

import pytest
import typer
from typer.testing import CliRunner

from gateway.capacity.accuracy import compare
from gateway.capacity.command import accuracy
from gateway.capacity.decisions import read_decisions
from tests.core.factories import MS

CATEGORY = "m/1[8, 8, 3]UINT8"


def admitted(stream, worst=40, t=0, **fields):
    worst_ns = None if worst is None else worst * MS
    return {
        "t_ns": t * MS,
        "action": "admitted",
        "stream": stream,
        "category": CATEGORY,
        "test": "exact",
        "worst_latency_ns": worst_ns,
    } | fields


def job(number, frames, *, arrived, finished, expected=10, actual=10, planned=None, category=CATEGORY):
    """The lines of one job: frames arrive (deadline 50 ms later), it starts, it ends."""
    return [
        {
            "t_ns": arrived * MS,
            "action": "accept_frames",
            "frames": [[s, n, number, (arrived + 50) * MS] for s, n in frames],
        },
        {
            "t_ns": (finished - actual) * MS,
            "action": "start_job",
            "job": number,
            "category": category,
            "frames": [list(f) for f in frames],
        },
        {
            "t_ns": finished * MS,
            "action": "deliver_frames",
            "job": number,
            "category": category,
            "started_ns": (finished - actual) * MS,
            "finished_ns": finished * MS,
            "expected_ns": round(expected * MS),
            "actual_ns": actual * MS,
            "planned_end_ns": None if planned is None else planned * MS,
            "outcomes": ["met"] * len(frames),
        },
    ]


def as_bytes(lines):
    return [(line if isinstance(line, str) else json.dumps(line)).encode() + b"\n" for line in lines]


def report_of(*lines):
    return compare(read_decisions(as_bytes(lines)))


def test_figures_by_hand():
    report = report_of(
        admitted("a", worst=40),
        admitted("b", worst=20),
        *job(0, [("a", 0), ("b", 0)], arrived=0, finished=30, expected=10, actual=8, planned=32),
        *job(1, [("a", 1)], arrived=100, finished=135, expected=10, actual=12, planned=134),
        *job(2, [("a", 2)], arrived=200, finished=220, expected=10, actual=10),
        *job(3, [("x", 0)], arrived=300, finished=310, expected=5, actual=10, category="other"),
    )
    assert report.overall.execution_ratio.jobs == 4
    mine = report.categories[CATEGORY]
    assert (mine.execution_ratio.p50, mine.execution_ratio.max) == (1.0, 1.2)
    assert mine.execution_ratio.over == pytest.approx(1 / 3)
    assert mine.end_behind_ms is not None
    assert (mine.end_behind_ms.jobs, mine.end_behind_ms.max, mine.end_behind_ms.over) == (2, 1.0, 0.5)
    assert report.categories["other"].end_behind_ms is None
    a, b = report.streams
    assert (a.frames, a.deadline_ms, a.planned_worst_ms, a.worst_ms, a.within) == (3, 50, 40, 35, True)
    assert (b.frames, b.worst_ms, b.within) == (1, 30, False)


def test_frames_that_kept_the_promise():
    late = job(1, [("a", 1), ("b", 0)], arrived=100, finished=160)
    late[-1]["outcomes"] = ["missed", "met"]
    silent = job(2, [("c", 0)], arrived=200, finished=220)
    del silent[-1]["outcomes"]
    lost = [{"t_ns": 0, "action": "accept_frames", "frames": [["a", 2, 9, 50 * MS], ["b", 1, 9, 50 * MS]]}]
    lost += [
        {"t_ns": 1, "action": "drop_frames", "frames": [["a", 2]], "outcome": "expired", "reason": "late", "moved": []},
        {"t_ns": 1, "action": "drop_frames", "frames": [["b", 1]], "outcome": "cancelled", "reason": "", "moved": []},
    ]
    first = job(0, [("a", 0)], arrived=0, finished=30)
    report = report_of(admitted("a"), admitted("b"), admitted("c"), *first, *late, *silent, *lost)
    assert [(s.met, s.ended, s.cancelled) for s in report.streams] == [(1, 3, 0), (1, 1, 1), (None, 1, 0)]


def test_streams_without_a_plan_or_without_a_frame():
    report = report_of(
        admitted("a", worst=None), admitted("idle"), *job(0, [("a", 0)], arrived=0, finished=30, expected=10)
    )
    assert [(s.planned_worst_ms, s.worst_ms, s.within) for s in report.streams] == [(None, 30, None), (40, None, None)]


def test_a_frame_that_was_moved_or_dropped_is_not_waited_for():
    dropped = {
        "t_ns": 5 * MS,
        "action": "drop_frames",
        "frames": [["a", 0]],
        "outcome": "cancelled",
        "reason": "cancelled",
        "moved": [],
    }
    lines = [admitted("a"), *job(0, [("a", 0)], arrived=0, finished=30)]
    lines.insert(2, dropped)
    assert report_of(*lines).streams[0].frames == 0


def test_a_half_last_line_is_told_from_a_bad_one():
    lines = as_bytes([admitted("a"), *job(0, [("a", 0)], arrived=0, finished=30)])
    whole = read_decisions(lines)
    assert (whole.skipped, whole.half_line, len(whole.jobs)) == (0, False, 1)
    half = read_decisions([*lines, lines[-1][:-20]])
    assert (half.skipped, half.half_line, len(half.jobs)) == (0, True, 1)
    bad = read_decisions([*lines, b"{}\n", b"[" * 100_000 + b"\n", b"\xff\xfe\n", b"\n"])
    assert (bad.skipped, bad.half_line) == (3, False)


@pytest.mark.parametrize("end", range(1, 40, 7))
def test_it_survives_any_cut(end):
    raw = b"".join(as_bytes([admitted("a"), *job(0, [("a", 0)], arrived=0, finished=30)]))
    found = read_decisions(raw[: len(raw) * end // 40].splitlines(keepends=True))
    assert found.skipped == 0


def test_fields_of_a_wrong_type_are_skipped():
    _, _, delivered = job(0, [("a", 0)], arrived=0, finished=30)
    found = read_decisions(
        as_bytes(
            [
                delivered | {"expected_ns": 0},
                delivered | {"finished_ns": "late"},
                {"t_ns": 0, "action": "accept_frames", "frames": 3},
                {"t_ns": 0, "action": ["admitted"]},
                {"action": "admitted"},
            ]
        )
    )
    assert (len(found.jobs), found.skipped) == (0, 5)


def test_a_log_that_begins_in_the_middle():
    report = report_of(*job(7, [("a", 3)], arrived=0, finished=30)[2:], admitted("b"))
    assert (report.overall.execution_ratio.jobs, report.streams[0].frames) == (1, 0)


class TestCommand:
    @pytest.fixture
    def log(self, tmp_path):
        path = tmp_path / "log.jsonl"
        lines = [
            admitted("a"),
            *job(0, [("a", 0)], arrived=0, finished=30, planned=32),
            *job(1, [("a", 1)], arrived=100, finished=130, category="other $x"),
        ]
        path.write_bytes(b"".join(as_bytes(lines)))
        return path

    def run(self, *arguments):
        app = typer.Typer()
        app.command()(accuracy)
        return CliRunner().invoke(app, [str(argument) for argument in arguments])

    def test_json(self, log):
        result = self.run(log, "--json")
        assert result.exit_code == 0, result.output
        report = json.loads(result.output)
        assert report["jobs"] == 2
        assert report["overall"]["execution_ratio"]["p50"] == 1.0
        assert report["categories"]["other $x"]["end_behind_ms"] is None
        assert report["streams"][0]["within"] is True

    def test_tables(self, log):
        with log.open("ab") as file:
            file.write(b'{}\n{"t_ns": 1, "action": "dropped", "count": 7}\n{"t_ns"')
        output = self.run(log).output
        assert "Actual / expected execution time" in output
        assert "1 lines are no actions" in output
        assert "lacks 7 actions" in output
        assert "the last line is incomplete" in output

    def test_streams_are_told_in_order_of_admission(self, log, monkeypatch):
        monkeypatch.setenv("COLUMNS", "80")
        id_ = "0123456789abcdef"
        lines = [admitted("front-door-of-hall", worst=90), admitted(id_, worst=20)]
        lines += job(0, [(id_, 0), ("front-door-of-hall", 0)], arrived=0, finished=30)
        log.write_bytes(b"".join(as_bytes(lines)))
        told = [line.split() for line in self.run(log).output.splitlines()]
        assert ["1", "front-door-of-hall", "m", "8x8x3", "90.0", "30.0", "50.0", "1/1"] in told
        assert ["2", "01234567", "m", "8x8x3", "20.0", "30.0", "50.0", "1/1"] in told

    def test_names_and_cancelled_frames_are_shown(self, log, monkeypatch):
        monkeypatch.setenv("COLUMNS", "100")
        gone = [{"t_ns": 0, "action": "accept_frames", "frames": [["a", 1, 9, 50 * MS]]}]
        gone += [{"t_ns": 1, "action": "drop_frames", "frames": [["a", 1]], "outcome": "cancelled", "reason": "x"}]
        lines = [admitted("a", name="[front] door"), *job(0, [("a", 0)], arrived=0, finished=30), *gone]
        log.write_bytes(b"".join(as_bytes(lines)))
        output = " ".join(self.run(log).output.split())
        assert "1 [front] door m 8x8x3 40.0 30.0 50.0 1/1 and 1 cancelled" in output
        (stream,) = json.loads(self.run(log, "--json").output)["streams"]
        assert (stream["name"], stream["cancelled"]) == ("[front] door", 1)

    @pytest.mark.parametrize(("over", "says"), [(1, "the profile holds"), (2, "profile again")])
    def test_verdict(self, log, over, says):
        lines = [line for n in range(100) for line in job(n, [], arrived=n, finished=n + 20, actual=10 + (n < over))]
        log.write_bytes(b"".join(as_bytes(lines)))
        output = " ".join(self.run(log).output.split())
        assert f"Verdict: {over}.0% of 100 jobs took longer than their profiled time" in output
        assert says in output

    def test_categories_that_would_be_called_the_same_are_told_apart(self, log):
        lines = job(0, [], arrived=0, finished=30) + job(1, [], arrived=0, finished=30, category="m/2[8, 8, 3]UINT8")
        log.write_bytes(b"".join(as_bytes(lines)))
        output = self.run(log).output
        assert "m/1[8, 8, 3]UINT8" in output
        assert "m/2[8, 8, 3]UINT8" in output

    def test_plot(self, log, tmp_path):
        assert self.run(log, "--plot", tmp_path / "cdf.png").exit_code == 0
        assert (tmp_path / "cdf.png").read_bytes().startswith(b"\x89PNG")
        result = self.run(log, "--plot", tmp_path / "none" / "cdf.png")
        assert (result.exit_code, "the plot cannot be written" in result.output) == (2, True)

    @pytest.mark.parametrize(
        ("content", "says"),
        [
            (b"", "it is empty"),
            (b" \n\n", "it is empty"),
            (b"hello\n", "it is not a decision log"),
            (b"hello", "all that it holds is one line, which is incomplete or no action"),
            (as_bytes([admitted("a")])[0], "none of its 1 lines is of a job that was delivered"),
        ],
    )
    def test_nothing_to_compare(self, tmp_path, content, says):
        path = tmp_path / "log.jsonl"
        path.write_bytes(content)
        result = self.run(path)
        assert (result.exit_code, says in result.output) == (2, True)

    def test_no_file(self, tmp_path):
        result = self.run(tmp_path / "none.jsonl")
        assert (result.exit_code, "No such file" in result.output) == (2, True)
