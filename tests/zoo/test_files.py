import json
from pathlib import Path

import pytest

from gateway import paths
from gateway.zoo import files
from gateway.zoo.files import Manifest, is_intact, read_manifest, sha256, write_atomically


def manifest(**changes: object) -> Manifest:
    values = {
        "model": "m",
        "file": "model.onnx",
        "sha256": "0",
        "source": "keras M",
        "source_sha256": "1",
        "recipe": 1,
        "weights": "random",
        "seed": 0,
        "versions": {"onnx": "1"},
    }
    return Manifest(**(values | changes))


def test_a_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    manifest().write(tmp_path)
    assert read_manifest(tmp_path) == manifest()
    assert json.loads((tmp_path / "manifest.json").read_text())["seed"] == 0


@pytest.mark.parametrize("text", ["", "{", "[]", '{"model": "m"}', '{"unknown": 1}'])
def test_what_is_no_manifest_counts_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    assert read_manifest(tmp_path) is None


def test_no_manifest_is_none(tmp_path: Path) -> None:
    assert read_manifest(tmp_path) is None


def test_a_file_is_intact_only_while_its_checksum_agrees(tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    model.write_bytes(b"weights")
    described = manifest(sha256=sha256(model))
    assert is_intact(tmp_path, described)
    model.write_bytes(b"weighty")
    assert not is_intact(tmp_path, described)
    model.unlink()
    assert not is_intact(tmp_path, described)


def test_the_checksum_is_sha_256(tmp_path: Path) -> None:
    (tmp_path / "abc").write_bytes(b"abc")
    assert sha256(tmp_path / "abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    target = tmp_path / "directory" / "file"
    write_atomically(target, lambda path: path.write_text("old") and None)

    def fail(path: Path) -> None:
        path.write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomically(target, fail)
    assert target.read_text() == "old"
    assert list(target.parent.iterdir()) == [target]
    assert target.stat().st_mode & 0o777 == 0o644


def test_the_cache_can_be_moved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FRAMEGATE_CACHE", str(tmp_path))
    assert files.cache_directory() == tmp_path
    monkeypatch.delenv("FRAMEGATE_CACHE")
    assert files.cache_directory() == Path(__file__).parents[2] / ".cache"
    monkeypatch.setattr(paths, "_ROOT", tmp_path / "site-packages")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert files.cache_directory() == tmp_path / "framegate"


def test_the_repository_is_the_one_here_else_the_checkouts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert files.default_repository() == Path(__file__).parents[2] / "model_repository"
    (tmp_path / "model_repository").mkdir()
    assert files.default_repository() == Path("model_repository")
    (tmp_path / "model_repository").rmdir()
    monkeypatch.setattr(paths, "_ROOT", tmp_path / "site-packages")
    assert files.default_repository() == Path("model_repository")


def test_a_repository_that_was_named_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert paths.find_repository(Path("elsewhere")) == Path("elsewhere")
    for unnamed in (None, Path("model_repository")):
        assert paths.find_repository(unnamed) == paths.default_repository()
