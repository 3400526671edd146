"""A place where nothing can be written is one clear line and exit code 2, before anything is done."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("command", [("demo", "--seconds", "5", "--output"), ("triton", "--log-file")])
def test_a_place_that_cannot_be_made_is_one_line(tmp_path, command):
    (tmp_path / "file").write_text("")
    place = str(tmp_path / "file" / "x" / "y")
    done = subprocess.run(
        [sys.executable, "-c", "from gateway.cli import app; app()", *command, place],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    [line] = (done.stdout + done.stderr).splitlines()
    assert line.startswith("error: ")
    assert "file" in line
