import json
from dataclasses import asdict
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from gateway.api.requests import ModelName
from gateway.core.profile import ModelEntry, ProfileError
from gateway.runtime.models import MODEL_NAME
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


@pytest.mark.parametrize("name", ["../../etc", "/etc/passwd", "", ".hidden", "-x", "a b", "a\n", "a" * 129, "é"])
@pytest.mark.parametrize("where", ["entries", "models"])
def test_a_model_name_that_could_lead_astray_is_refused(tmp_path: Path, where: str, name: str) -> None:
    document = make_profile().to_dict() | {"models": [asdict(ModelEntry("echo", "1", 1.0, 1.0, 1))]}
    document[where][0]["model"] = name
    path = tmp_path / "box.json"
    path.write_text(json.dumps(document))
    with pytest.raises(ProfileError, match=r"box\.json: .*model"):
        read_profile(path)


def test_the_names_are_those_that_the_api_takes() -> None:
    adapter = TypeAdapter(ModelName)
    for name in ("centerface", "a.b-c_1", "A" * 128, "A" * 129, "../x", "", ".x", "-x", "a/b", "a\n", "é"):
        try:
            adapter.validate_python(name)
            taken = True
        except ValidationError:
            taken = False
        assert taken == (MODEL_NAME.fullmatch(name) is not None), name


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"[" * 200_000, "nested too deeply"),
        (b'{"a":' * 200_000, "nested too deeply"),
        (b'{"schema": 1, "device": "caf\xe9", "entries": []}', "not text in UTF-8"),
        ('{"schema": 1, "entries": []}'.encode("utf-16"), "not text in UTF-8"),
    ],
)
def test_what_is_no_plain_json_is_said_in_plain_words(tmp_path: Path, content: bytes, text: str) -> None:
    path = tmp_path / "box.json"
    path.write_bytes(content)
    with pytest.raises(ProfileError, match=rf"box\.json: .*{text}"):
        read_profile(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"nowhere\.json"):
        read_profile(tmp_path / "nowhere.json")
