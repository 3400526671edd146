"""Where perf_analyzer is looked for, how one is fetched, and what is said where none runs."""

import hashlib
import os
import sys
import zipfile
from pathlib import Path

import pytest

from profiler.perf_analyzer import PerfAnalyzerError, fetch, find
from profiler.perf_analyzer.fetch import unpack
from tests.profiler.fake_perf_analyzer import PYTHON, make

tool_module = sys.modules["profiler.perf_analyzer.tool"]
fetch_module = sys.modules["profiler.perf_analyzer.fetch"]


@pytest.fixture(autouse=True)
def _nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty PATH, a Python environment and a checkout without any perf_analyzer."""
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "venv" / "bin" / "python"))
    monkeypatch.setattr(tool_module, "checkout", lambda: tmp_path)


def broken(directory: Path, message: str) -> Path:
    path = make(directory)
    path.write_text(f"#!/bin/sh\necho '{message}' >&2\nexit 127\n")
    return path


def test_none_is_none() -> None:
    assert find() is None


def test_path_comes_first_then_the_environment_then_the_fetched_one(tmp_path: Path) -> None:
    places = [tmp_path / "path", tmp_path / "venv" / "bin", tmp_path / ".tools" / "perf_analyzer"]
    for place in places:
        make(place)
    for place in places:
        tool = find()
        assert tool is not None
        assert (tool.path, tool.libraries) == (place / "perf_analyzer", None)
        tool.path.unlink()


def test_one_that_does_not_run_is_passed_over(tmp_path: Path) -> None:
    broken(tmp_path / "path", "no")
    make(tmp_path / ".tools" / "perf_analyzer")
    tool = find()
    assert tool is not None
    assert tool.path == tmp_path / ".tools" / "perf_analyzer" / "perf_analyzer"


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (
            "perf_analyzer: /lib/libc.so.6: version `GLIBC_2.38'\"'\"' not found (required by perf_analyzer)",
            r"newer C library \(GLIBC_2.38\): framegate profile --fetch-perf-analyzer",
        ),
        (
            "perf_analyzer: error while loading shared libraries: libfoo.so.3: cannot open shared object file",
            r"Install libfoo.so.3 \(your distribution's package\)",
        ),
        ("Illegal instruction", r"Illegal instruction. Name another with --perf-analyzer"),
    ],
)
def test_what_to_do_is_said(tmp_path: Path, message: str, said: str) -> None:
    path = broken(tmp_path / "path", message)
    for explicit in (path, None):
        with pytest.raises(PerfAnalyzerError, match=said):
            find(explicit)


def test_libraries_of_the_embedded_tritons_wheel_stand_in_for_missing_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program runs only with both names in LD_LIBRARY_PATH; nobody else's environment changes."""
    carried = tmp_path / "site" / "nvidia_pytriton.libs"
    for name in ("libb64-98cb6333.so.0d", "libcudart-09529672.so.12.6.77"):
        carried.mkdir(parents=True, exist_ok=True)
        (carried / name).write_text(name)
    (tmp_path / "site" / "pytriton").mkdir()
    (tmp_path / "site" / "pytriton" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.delitem(sys.modules, "pytriton", raising=False)
    path = tmp_path / "perf_analyzer"
    path.write_text(
        '#!/bin/sh\nfirst="${LD_LIBRARY_PATH%%:*}"\n'
        "for name in libb64.so.0d libcudart.so.12; do\n"
        '[ -e "$first/$name" ] || { echo "$0: error while loading shared libraries: $name: no" >&2; exit 127; }\ndone\n'
    )
    path.chmod(0o755)
    tool = find(path)
    assert tool is not None
    assert tool.libraries is not None
    links = {link.name: link.resolve().name for link in tool.libraries.iterdir()}
    assert links == {"libb64.so.0d": "libb64-98cb6333.so.0d", "libcudart.so.12": "libcudart-09529672.so.12.6.77"}
    assert tool.environment()["LD_LIBRARY_PATH"].startswith(str(tool.libraries))
    (carried / "libb64-98cb6333.so.0d").rename(carried / "libb64-0.so.0d")
    assert find(path) == tool, "a new wheel: the links follow"
    (carried / "libb64-0.so.0d").unlink()
    with pytest.raises(PerfAnalyzerError, match=r"Install libb64.so.0d \(pip install 'framegate\[embedded\]'"):
        find(path)


# ---------------------------------------------------------------- fetching


def wheel_with(path: Path, *members: str) -> Path:
    info = "tritonclient-2.50.0.dist-info"
    files = dict.fromkeys(members, "#!/bin/sh\nexit 0\n") | {
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: tritonclient\nVersion: 2.50.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


BINARY = "tritonclient-2.50.0.data/data/bin/perf_analyzer"
WHEEL = "tritonclient-2.50.0-py3-none-manylinux1_x86_64.whl"


def offline(monkeypatch: pytest.MonkeyPatch, wheels: Path) -> None:
    """Let pip, of the Python that runs this test, find only what is in `wheels`."""
    monkeypatch.setattr(sys, "executable", PYTHON)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setenv("PATH", os.defpath)


def test_only_the_binary_is_unpacked_and_it_is_run_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = wheel_with(tmp_path / "wheels" / WHEEL, BINARY, "tritonclient/__init__.py")
    offline(monkeypatch, wheel.parent)
    monkeypatch.setattr(fetch_module, "_SHA256", hashlib.sha256(wheel.read_bytes()).hexdigest())
    said: list[str] = []
    tool = fetch(said.append)
    assert [path.name for path in (tmp_path / ".tools" / "perf_analyzer").iterdir()] == ["perf_analyzer"]
    assert tool.path == tmp_path / ".tools" / "perf_analyzer" / "perf_analyzer"
    assert os.access(tool.path, os.X_OK)
    assert "pip downloads tritonclient==2.50.0" in said[0]
    assert str(tool.path.parent) in said[-1]


def test_another_file_under_its_name_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offline(monkeypatch, wheel_with(tmp_path / "wheels" / WHEEL, BINARY).parent)
    with pytest.raises(PerfAnalyzerError, match="is not the one known here"):
        fetch(lambda _: None)
    assert not (tmp_path / ".tools").exists()


def test_without_a_network_the_next_step_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    offline(monkeypatch, tmp_path / "empty")
    with pytest.raises(PerfAnalyzerError, match=r"pip cannot download .*No matching distribution.*--engine native"):
        fetch(lambda _: None)


def test_another_machine_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with pytest.raises(PerfAnalyzerError, match=r"no perf_analyzer to fetch for linux on aarch64.*--engine native"):
        fetch(lambda _: None)


@pytest.mark.parametrize("members", [(), (BINARY, "other/bin/perf_analyzer")])
def test_a_wheel_without_just_one_is_refused(tmp_path: Path, members: tuple[str, ...]) -> None:
    with pytest.raises(PerfAnalyzerError, match="not one"):
        unpack(wheel_with(tmp_path / WHEEL, *members), tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_wheel_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    wheel = wheel_with(tmp_path / WHEEL, BINARY)
    wheel.write_bytes(wheel.read_bytes()[:100])
    with pytest.raises(PerfAnalyzerError, match="cannot be unpacked"):
        unpack(wheel, tmp_path / "out")
