import io
import json
import logging
import threading
import time

import pytest

from gateway.telemetry import logs


@pytest.fixture(autouse=True)
def _restore_root():
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    quiet = {name: logging.getLogger(name).level for name in logs.QUIET}
    yield
    root.handlers[:] = before
    root.setLevel(level)
    for name, each in quiet.items():
        logging.getLogger(name).setLevel(each)


def fail():
    try:
        raise ValueError("inner\nsecond line")
    except ValueError:
        logging.getLogger("gateway.x").exception("it\nfailed")


def test_json_is_one_object_per_line_traceback_and_all():
    stream = io.StringIO()
    logs.configure("info", "json", stream)
    fail()
    logging.getLogger("gateway.x").debug("not shown")
    [line] = stream.getvalue().splitlines()
    content = json.loads(line)
    assert (content["level"], content["logger"], content["message"]) == ("error", "gateway.x", "it\nfailed")
    assert "ValueError: inner" in content["traceback"]
    assert content["time"].endswith("+00:00")


def test_text_names_level_and_logger():
    stream = io.StringIO()
    logs.configure("warning", "text", stream)
    logging.getLogger("gateway.x").warning("careful: %d", 3)
    logging.getLogger("gateway.x").info("not shown")
    assert stream.getvalue().rstrip().endswith("WARNING gateway.x: careful: 3")


def test_chatty_libraries_are_quiet_but_not_mute():
    stream = io.StringIO()
    logs.configure("info", "text", stream)
    logging.getLogger("uvicorn.error").info("Started server process")
    logging.getLogger("uvicorn.error").error("broken")
    assert [line.split(": ")[-1] for line in stream.getvalue().splitlines()] == ["broken"]


# ---------------------------------------------------------------- lines that a thread writes


class Stuck(io.StringIO):
    """A terminal that was stopped: it takes nothing until it may go on."""

    def __init__(self):
        super().__init__()
        self.reached, self.may_go = threading.Event(), threading.Event()

    def write(self, text):
        self.reached.set()
        assert self.may_go.wait(10)
        return super().write(text)


def messages(stream):
    return [line.split(": ", 1)[-1] for line in stream.getvalue().splitlines()]


def test_lines_are_written_by_another_thread_in_order():
    stream, writers = io.StringIO(), set()
    logs.configure("info", "text", stream)
    [handler] = logging.getLogger().handlers
    emit = handler.emit
    handler.emit = lambda record: (writers.add(threading.current_thread().name), emit(record))
    with logs.LogQueue(1_000) as lines:
        for number in range(200):
            logging.getLogger("gateway.x").info("line %d", number)
        logging.getLogger("gateway.x").debug("not shown")
    assert messages(stream) == [f"line {number}" for number in range(200)]
    assert writers == {"log"}
    assert lines.dropped == 0
    assert logging.getLogger().handlers == [handler]
    assert not any(thread.name == "log" for thread in threading.enumerate())
    logging.getLogger("gateway.x").info("directly again")
    assert messages(stream)[-1] == "directly again"


def test_a_terminal_that_is_stopped_costs_lines_not_time():
    stream = Stuck()
    logs.configure("info", "text", stream)
    with logs.LogQueue(10) as lines:
        logging.getLogger("gateway.x").info("first")
        assert stream.reached.wait(10)  # the thread is stuck with it
        began = time.monotonic()
        for number in range(100):
            logging.getLogger("gateway.x").info("line %d", number)
        assert time.monotonic() - began < 1
        assert lines.dropped == 90
        stream.may_go.set()
    missing = "90 lines are missing here: they came faster than they could be written"
    assert messages(stream) == ["first", missing, *(f"line {number}" for number in range(10))]


def test_the_end_waits_for_a_stopped_terminal_but_not_for_ever(monkeypatch):
    monkeypatch.setattr(logs, "CLOSE_S", 0.05)
    stream = Stuck()
    logs.configure("info", "text", stream)
    began = time.monotonic()
    with logs.LogQueue(10) as lines:
        logging.getLogger("gateway.x").info("first")
    assert 0.05 <= time.monotonic() - began < 5
    stream.may_go.set()
    lines._thread.join(10)
    assert messages(stream) == ["first"]


def test_what_is_logged_is_what_was_true_then():
    stream, values = io.StringIO(), [1]
    logs.configure("info", "json", stream)
    with logs.LogQueue(10):
        logging.getLogger("gateway.x").info("values %s", values)
        values.append(2)
        fail()
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert first["message"] == "values [1]"
    assert (second["message"], second["logger"]) == ("it\nfailed", "gateway.x")
    assert "ValueError: inner" in second["traceback"]


class Chatty:
    """Logs when it goes, and is one of a cycle, so that it goes in the middle of whatever runs."""

    def __init__(self):
        self.me = self

    def __del__(self):
        logging.getLogger("gateway.x").info("gone")


def test_a_destructor_may_log_in_the_middle_of_a_log_call():
    import gc

    stream = io.StringIO()
    logs.configure("info", "text", stream)
    before = gc.get_threshold()
    with logs.LogQueue(100_000):
        gc.set_threshold(1)  # so that they go at almost every allocation
        try:
            for _ in range(300):
                Chatty()
                logging.getLogger("gateway.x").info("said")
        finally:
            gc.set_threshold(*before)
            gc.collect()
    assert messages(stream).count("said") == 300
    assert messages(stream).count("gone") == 300
