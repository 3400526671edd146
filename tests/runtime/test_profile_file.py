from pathlib import Path

import pytest

from gateway.core.profile_entry import ProfileError
from gateway.runtime.profile_file import read_profile, write_profile
from tests.runtime_support import make_profile


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "new" / "box.json"
    write_profile(path, make_profile())
    assert read_profile(path).to_dict() == make_profile().to_dict()
    assert [file.name for file in path.parent.iterdir()] == ["box.json"]


def test_a_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "box.json"
    write_profile(path, make_profile())

    def full(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="no space"):
        write_profile(path, make_profile(execution_ms=9))
    assert read_profile(path).to_dict() == make_profile().to_dict()
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"schema": 2, "entries": []}', b"\xff\xfe", b'{"schema": 1}'])
def test_a_bad_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "box.json"
    path.write_bytes(content)
    with pytest.raises(ProfileError, match=r"box\.json: "):
        read_profile(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"nowhere\.json"):
        read_profile(tmp_path / "nowhere.json")
