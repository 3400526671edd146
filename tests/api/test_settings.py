import subprocess
import sys
from pathlib import Path

import pytest
import typer
from pydantic import ValidationError

from gateway.api.command import serve
from gateway.api.environment import unknown_variables
from gateway.api.settings_table import PLACE, page
from gateway.core.config import AdmissionTest, EngineConfig, UtilizationTest
from gateway.core.types import JobDeadline
from gateway.settings import LimitsSettings, Settings, SharedMemory


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch):
    import os

    for name in list(os.environ):
        if name.startswith("FRAMEGATE_"):
            monkeypatch.delenv(name)


def test_defaults_are_the_documented_ones():
    settings = Settings()
    assert settings.server.host == "127.0.0.1"
    assert settings.arena.bytes == 256 << 20
    assert settings.limits.max_body_bytes == 64 << 20
    assert settings.triton.shared_memory is SharedMemory.AUTO
    assert settings.models == []


def test_the_environment_sets_nested_fields(monkeypatch):
    monkeypatch.setenv("FRAMEGATE_TRITON__URL", "10.0.0.5:8001")
    monkeypatch.setenv("FRAMEGATE_MODELS", " centerface, resnet50,")
    monkeypatch.setenv("FRAMEGATE_SCHEDULING__EARLY_DISPATCH", "false")
    monkeypatch.setenv("framegate_profile", "profiles/box.json")
    settings = Settings()
    assert settings.triton.url == "10.0.0.5:8001"
    assert settings.triton.call_timeout_ms == 30_000  # the rest of the group keeps its defaults
    assert settings.models == ["centerface", "resnet50"]
    assert settings.scheduling.early_dispatch is False
    assert settings.profile == Path("profiles/box.json")


def test_arguments_win_over_the_environment_field_by_field(monkeypatch):
    monkeypatch.setenv("FRAMEGATE_SERVER__PORT", "9000")
    monkeypatch.setenv("FRAMEGATE_SERVER__HOST", "::1")
    settings = Settings(server={"port": 9001})
    assert (settings.server.host, settings.server.port) == ("::1", 9001)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FRAMEGATE_TRITON__URLX", "a"),
        ("FRAMEGATE_TRITON__CALL_TIMEOUT_MS", "nan"),
        ("FRAMEGATE_TRITON__CALL_TIMEOUT_MS", "inf"),
        ("FRAMEGATE_TRITON__SHARED_MEMORY", "maybe"),
        ("FRAMEGATE_SCHEDULING__HORIZON_MS", "-1"),
        ("FRAMEGATE_SCHEDULING__JOB_DEADLINE", "paper"),
        ("FRAMEGATE_ARENA__BYTES", "0"),
        ("FRAMEGATE_LIMITS__MAX_STREAMS", "0"),
        ("FRAMEGATE_SERVER__PORT", "65536"),
    ],
)
def test_a_typing_error_is_an_error(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    with pytest.raises(ValidationError):
        Settings()


@pytest.mark.parametrize("url", ["127.0.0.1:8001", "triton-0.local:1", "[::1]:65535", "[fe80::1%eth0]:8001"])
def test_an_address_of_triton(url):
    assert Settings(triton={"url": url}).triton.url == url


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:8001", "127.0.0.1", "127.0.0.1:", ":8001", "a:99999", "a:0", "a:8001/", "::1:8001", "a b:1"],
)
def test_what_is_no_address_of_triton(url):
    with pytest.raises(ValidationError, match=r"triton\.url"):
        Settings(triton={"url": url})


def test_the_http_endpoint_of_triton_is_an_address_or_none():
    assert Settings().triton.http_url == ""
    assert Settings(triton={"http_url": "triton:8000"}).triton.http_url == "triton:8000"
    with pytest.raises(ValidationError, match=r"triton\.http_url.*\n.*as in 127\.0\.0\.1:8000"):
        Settings(triton={"http_url": "http://triton:8000"})
    with pytest.raises(ValidationError, match=r"triton\.url"):
        Settings(triton={"url": ""})


@pytest.mark.parametrize("url", ["", "triton:8002", "http://triton:8002/metrics", "[::1]:8002/metrics"])
def test_an_address_of_tritons_metrics(url):
    assert Settings(residency={"metrics_url": url}).residency.metrics_url == url


@pytest.mark.parametrize("url", ["https://triton:8002/metrics", "triton", "http://triton/metrics", "/metrics"])
def test_what_is_no_address_of_tritons_metrics(url):
    with pytest.raises(ValidationError, match=r"residency\.metrics_url"):
        Settings(residency={"metrics_url": url})


def test_one_of_the_largest_bodies_must_fit():
    with pytest.raises(ValidationError, match="inflight_body_bytes"):
        Settings(limits={"max_body_bytes": 512 << 20})
    Settings(limits={"max_body_bytes": 512 << 20, "inflight_body_bytes": 512 << 20})


def test_unknown_variables_are_named_with_the_nearest_known_one():
    known = ["FRAMEGATE_PROFILE", "framegate_server", "FRAMEGATE_LIMITS__MAX_STREAMS", "FRAMEGATE_CACHE", "PATH"]
    assert unknown_variables(known) == []
    assert unknown_variables(["FRAMEGATE_TRITON_URL", "FRAMEGATE_Q", *known]) == [
        "FRAMEGATE_Q is no setting and is ignored.",
        "FRAMEGATE_TRITON_URL is no setting and is ignored. Is it FRAMEGATE_TRITON__URL?",
    ]


def test_an_unknown_setting_of_a_group_is_refused_and_not_called_ignored(monkeypatch, capsys):
    assert unknown_variables(["FRAMEGATE_SCHEDULING__GARD"]) == []
    monkeypatch.setenv("FRAMEGATE_SCHEDULING__GARD", "1")
    with pytest.raises(typer.Exit) as ended:
        serve()
    assert ended.value.exit_code == 2
    said = capsys.readouterr().err
    assert said == "framegate serve: setting scheduling.gard: there is no such field; did you mean guard?\n"


def test_settings_do_not_change():
    with pytest.raises(ValidationError):
        Settings().limits.max_streams = 3


def test_engine_config_is_in_nanoseconds():
    settings = Settings(
        scheduling={
            "early_dispatch": False,
            "job_deadline": "window",
            "admission_test": "sporadic",
            "max_horizon_frames": 500,
            "guard": False,
            "dispatch_overhead_ms": 0.25,
            "send_ahead_ms": 1.5,
            "utilization_test": "deeprt",
        }
    )
    assert settings.engine_config() == EngineConfig(
        early_dispatch=False,
        job_deadline=JobDeadline.WINDOW,
        admission_test=AdmissionTest.SPORADIC,
        max_horizon_frames=500,
        guard=False,
        dispatch_overhead_ns=250_000,
        send_ahead_ns=1_500_000,
        utilization_test=UtilizationTest.DEEPRT,
    )


def test_default_engine_config_is_the_engines_own_but_for_what_is_sent_ahead():
    assert Settings().engine_config() == EngineConfig(send_ahead_ns=3_000_000)


def test_every_field_is_described_and_says_its_unit():
    for group in (
        LimitsSettings,
        *(f.annotation for f in Settings.model_fields.values() if hasattr(f.annotation, "model_fields")),
    ):
        for name, field in group.model_fields.items():
            assert field.description, f"{group.__name__}.{name}"


def fields_of(field):
    return getattr(field.annotation, "model_fields", {})


def test_the_page_of_settings_is_as_its_command_writes_it():
    """``python -m gateway.api.settings_table`` writes it anew."""
    assert (Path(__file__).parents[2] / PLACE).read_text() == page()
    assert "| `LIMITS__IDLE_STREAM_S` | `600` | 0 to 31536000 | A stream of which" in page()
    assert "| `SCHEDULING__ADMISSION_TEST` | `auto` | `auto`, `exact`, `sporadic` |" in page()
    assert all(name.upper() in page() for group in Settings.model_fields.values() for name in fields_of(group))


def test_nothing_is_read_at_import():
    code = "import gateway.settings, gateway.api.command"
    environment = {"FRAMEGATE_SERVER__PORT": "no number", "PATH": ""}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=60)
