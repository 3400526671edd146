import importlib.util
from pathlib import Path

import pytest

from gateway.errors import EmbeddedTritonError
from gateway.triton import wheel


def test_the_wheels_files_are_found() -> None:
    found = wheel.find_wheel()
    assert found.server.is_file()
    assert found.stub.is_file()
    assert (found.python_backend / "libtriton_python.so").is_file()
    assert (found.site_packages / "numpy").is_dir()
    assert found.library_path.startswith(str(found.libraries[0]))


def test_options_are_those_the_server_lists() -> None:
    options = wheel.known_options(wheel.find_wheel())
    assert "--rate-limit" in options
    # 2.51.0 is older than the option; when this fails the wheel is newer, and the option gets passed.
    assert "--allow-client-shm" not in options


@pytest.mark.parametrize(
    ("platform", "python", "glibc", "words"),
    [
        ("darwin", (3, 11), None, "runs on Linux"),
        ("linux", (3, 11), (2, 34), "glibc >= 2.35 and found 2.34"),
        ("linux", (3, 11), None, "glibc >= 2.35 and found none"),
        ("linux", (3, 13), (2, 36), "Python <= 3.12, this is 3.13"),
    ],
)
def test_a_machine_that_does_not_fit_is_told_so(
    platform: str, python: tuple[int, int], glibc: tuple[int, int] | None, words: str
) -> None:
    with pytest.raises(EmbeddedTritonError, match=words) as caught:
        wheel._check_platform(platform, python, glibc)
    assert "triton.url" in caught.value.detail


def test_a_machine_that_fits_passes() -> None:
    wheel._check_platform("linux", (3, 12), (2, 35))
    wheel._check_numpy("1.26.4")


def test_numpy_2_names_the_next_step() -> None:
    with pytest.raises(EmbeddedTritonError, match="pip install 'numpy<2'"):
        wheel._check_numpy("2.1.0")


def test_a_missing_wheel_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EmbeddedTritonError, match=r"pip install 'framegate\[embedded\]'"):
        wheel.find_wheel()


def test_an_incomplete_wheel_names_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "pytriton").mkdir()
    (tmp_path / "pytriton/__init__.py").touch()
    spec = importlib.util.spec_from_file_location(
        "pytriton", tmp_path / "pytriton/__init__.py", submodule_search_locations=[str(tmp_path / "pytriton")]
    )
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    with pytest.raises(EmbeddedTritonError, match="tritonserver is missing"):
        wheel.find_wheel()


def test_a_python_without_its_shared_library_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheel.sysconfig, "get_config_var", lambda name: "/nowhere")
    monkeypatch.setattr(wheel.ctypes.util, "find_library", lambda name: None)
    with pytest.raises(EmbeddedTritonError, match="--enable-shared"):
        wheel.find_wheel()


def test_a_server_that_does_not_run_is_told_so(tmp_path: Path) -> None:
    script = tmp_path / "tritonserver"
    script.write_text("#!/bin/sh\necho 'libfoo.so: cannot open' >&2\nexit 127\n")
    script.chmod(0o755)
    broken = wheel.TritonWheel(script, tmp_path, tmp_path, (tmp_path,), tmp_path)
    with pytest.raises(EmbeddedTritonError, match=r"libfoo\.so: cannot open"):
        wheel.known_options(broken)
    script.unlink()
    gone = wheel.TritonWheel(script, tmp_path / "other", tmp_path, (tmp_path,), tmp_path)
    with pytest.raises(EmbeddedTritonError, match="cannot be run"):
        wheel.known_options(gone)
