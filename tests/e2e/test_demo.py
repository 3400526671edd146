"""`framegate demo`, whole: real video, real model, real Triton. What the README promises is asserted here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import cv2
import pytest

from gateway.core.profile import Profile
from gateway.core.types import Category

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(300)]

SECONDS = 16


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """Run it once; return (exit status, its JSON, its output directory, what it told)."""
    output = tmp_path_factory.mktemp("demo") / "output"
    command = [sys.executable, "-c", "from gateway.cli import app; app()", "demo", "--json"]
    done = subprocess.run(
        [*command, "--seconds", str(SECONDS), "--output", str(output)], capture_output=True, text=True, timeout=280
    )
    assert done.stdout, done.stderr
    document = json.loads(done.stdout.splitlines()[-1])
    return done.returncode, document, output, done.stderr


def test_it_ends_well(demo):
    status, document, output, told = demo
    assert document["failures"] == []
    assert status == 0, told
    assert json.loads((output / "summary.json").read_text()) == document


def test_the_gateway_logs_no_error(demo):
    _, _, output, _ = demo
    log = (output / "gateway.log").read_text()
    assert "listening at" in log
    assert "Traceback" not in log
    assert " ERROR " not in log


def test_every_frame_has_one_outcome_and_nearly_all_met_their_deadline(demo):
    _, document, _, _ = demo
    outcomes = sum(document[name] for name in ("met", "missed", "expired", "cancelled", "failed"))
    # A slow machine gets slower cameras.
    assert document["frames"] == outcomes >= 0.8 * SECONDS * sum(stream["fps"] for stream in document["per_stream"])
    assert document["met"] >= 0.99 * document["frames"]
    assert document["books"] == "balanced"
    assert 0 < document["p50_latency_ms"] <= document["p99_latency_ms"]


def pairs_pay(output):
    """Whether the carphones may share a batch: where a pair was profiled as much too slow, plans pass it by."""
    profile = Profile.from_dict(json.loads((output / "profile.json").read_text()))
    return profile.max_batch(Category("centerface", "1", (144, 176, 3))) > 1


def test_streams_share_batches(demo):
    _, document, output, _ = demo
    assert document["streams_admitted"] == 4
    if pairs_pay(output):
        assert document["mean_batch"] > 1
    assert {tuple(stream["shape"]) for stream in document["per_stream"][:2]} == {(144, 176, 3)}
    assert len({tuple(stream["shape"]) for stream in document["per_stream"]}) == 3
    assert all(stream["deadline_ms"] <= 2e3 / stream["fps"] for stream in document["per_stream"])


def test_one_camera_is_refused_with_its_first_miss_though_an_empty_device_would_carry_it(demo):
    _, document, _, told = demo
    assert document["streams_refused"] == 1
    refusal = document["refusal"]
    assert refusal["reason"] == "deadline_miss"
    assert refusal["alone"]["admitted"] is True
    assert refusal["first_miss"]["late_ms"] > 0
    assert refusal["first_miss"]["names"]
    assert f"{refusal['name']} refused" in told


def test_the_face_is_found_and_outputs_agree_with_the_independent_run(demo):
    _, document, output, _ = demo
    assert document["faces_found"] >= 0.9
    assert document["compared"]["frames"] >= min(50, document["frames"] / 2)
    if pairs_pay(output):
        assert document["compared"]["batched"] >= 1
    assert document["max_abs_error"] <= 1e-3


@pytest.mark.parametrize(("name", "least"), [("annotated.png", (400, 500)), ("latency.png", (400, 800))])
def test_pictures_are_there(demo, name, least):
    _, _, output, _ = demo
    picture = cv2.imread(str(Path(output, name)))
    assert picture.shape[:2] >= least
    assert picture.std() > 10
