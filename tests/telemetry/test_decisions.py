import json
import threading

import pytest

from gateway.core.actions import DropFrames, StreamEnded
from gateway.core.events import Tick
from gateway.core.log import entry
from gateway.core.types import Frame, Outcome
from gateway.telemetry.decisions import DecisionLog


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def ended(number):
    return StreamEnded(f"s{number}", "closed")


def test_every_action_is_a_line_in_order(tmp_path):
    path = tmp_path / "logs" / "decisions.jsonl"
    log = DecisionLog(path, 1_000)
    dropped = DropFrames((Frame("s", 0, 1, 2, 3),), Outcome.EXPIRED, "deadline")
    log.on_actions(10, Tick(), [dropped, ended(0)])
    log.on_actions(11, Tick(), [])
    log.on_actions(12, Tick(), [ended(1)])
    log.close()
    assert lines(path) == [
        json.loads(json.dumps(entry(t, a))) for t, a in ((10, dropped), (10, ended(0)), (12, ended(1)))
    ]


def test_a_second_run_appends(tmp_path):
    path = tmp_path / "decisions.jsonl"
    for number in range(2):
        log = DecisionLog(path, 1_000)
        log.on_actions(number, Tick(), [ended(number)])
        log.close()
    assert [line["t_ns"] for line in lines(path)] == [0, 1]


class SlowFile:
    """Holds the writer at its first write, until it may go on."""

    def __init__(self, real):
        self.real = real
        self.reached = threading.Event()
        self.may_go = threading.Event()

    def write(self, data):
        self.reached.set()
        assert self.may_go.wait(10)
        return self.real.write(data)

    def flush(self):
        self.real.flush()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.real.close()


def test_a_slow_disk_costs_entries_not_time(tmp_path, monkeypatch):
    path = tmp_path / "decisions.jsonl"
    files = []

    def open_slowly(self, mode):
        files.append(SlowFile(open(self, mode)))  # noqa: SIM115 - the log closes it
        return files[-1]

    monkeypatch.setattr(type(path), "open", open_slowly)
    log = DecisionLog(path, 2)
    log.on_actions(0, Tick(), [ended(0)])
    assert files[0].reached.wait(10)  # the writer is stuck with it
    for t_ns in range(1, 6):
        log.on_actions(t_ns, Tick(), [ended(t_ns)])
    assert log.dropped == 3
    files[0].may_go.set()
    log.close()
    monkeypatch.undo()
    written = lines(path)
    assert [line["t_ns"] for line in written if line["action"] == "stream_ended"] == [0, 1, 2]
    assert [line["count"] for line in written if line["action"] == "dropped"] == [3]


def test_closing_twice_is_no_error_and_leaves_no_thread(tmp_path):
    log = DecisionLog(tmp_path / "decisions.jsonl", 10)
    log.close()
    log.close()
    assert not any(thread.name == "decision-log" for thread in threading.enumerate())


def test_a_full_disk_ends_the_log_not_the_gateway(caplog):
    from pathlib import Path

    log = DecisionLog(Path("/dev/full"), 10)
    for t_ns in range(100):
        log.on_actions(t_ns, Tick(), [ended(t_ns)])
    log.close()
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "No space left" in caplog.text


def test_a_path_that_cannot_be_written_is_an_error_at_once(tmp_path):
    with pytest.raises(IsADirectoryError):
        DecisionLog(tmp_path, 10)
