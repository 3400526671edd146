import io
import json
import logging

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
