"""Frames over a WebSocket, to a real Triton: the same results as by calls, and an orderly end with it open."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

from gateway.client.client import FramegateClient
from gateway.client.problems import GatewayUnreachable
from gateway.core.profile import Profile, ProfileEntry
from gateway.runtime.profile_file import write_profile
from tests.e2e.test_serve_embedded import regions, serving, tritons

pytestmark = pytest.mark.e2e

SHAPE = (96, 128, 3)
STREAM = [sys.executable, "-c", "import typer; from gateway.client.command import stream; typer.run(stream)"]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ws")


@pytest.fixture(scope="module")
def gateway(built_models: Callable[..., Path], directory: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    repository = directory / "repository"
    repository.mkdir()
    (repository / "centerface").symlink_to((built_models("centerface") / "centerface").resolve())
    entries = tuple(ProfileEntry("centerface", "1", SHAPE, "UINT8", n, 100, 40.0, 40.0, 40.0) for n in (1, 2))
    write_profile(directory / "profile.json", Profile(entries=entries))
    options = ["--embedded", "--port", "0", "--arena-mb", "4", "--model-repository", str(repository)]
    options += ["--profile", str(directory / "profile.json"), "--triton-log", str(directory / "triton.log")]
    with serving(options, stderr=subprocess.PIPE) as served:
        yield served


def frames(count: int) -> list[np.ndarray]:
    random = np.random.default_rng(4)
    return list(random.integers(0, 256, (count, *SHAPE), np.uint8))


def test_results_are_those_of_calls(gateway: tuple[subprocess.Popen[str], str]) -> None:
    """One at a time, so that every job holds one frame and its sums are in the same order."""

    async def main() -> None:
        async with FramegateClient(gateway[1]) as client:
            stream = await client.register("centerface", SHAPE, period_ms=10_000, deadline_ms=5_000, burst=32)
            async with client.open(stream) as socket:
                for index, frame in enumerate(frames(8)):
                    [by_call] = await client.post_frames(stream, [frame])
                    [by_socket] = await socket.send([frame], timestamp_ms=index)
                    assert (by_call.outcome, by_socket.outcome, by_socket.timestamp_ms) == ("met", "met", index)
                    assert by_call.outputs.keys() == by_socket.outputs.keys()
                    for name, output in by_call.outputs.items():
                        assert output.dtype == by_socket.outputs[name].dtype
                        np.testing.assert_array_equal(output, by_socket.outputs[name])
                together = await socket.send(frames(8))
                assert [result.seq for result in together] == list(range(16, 24))
                assert {result.outcome for result in together} == {"met"}
            await client.close(stream)

    asyncio.run(main())


def test_the_agent_sends_over_a_websocket(gateway: tuple[subprocess.Popen[str], str], directory: Path) -> None:
    import av

    clip = directory / "clip.mp4"
    with av.open(str(clip), "w") as container:
        video = container.add_stream("mpeg4", rate=10)
        video.width, video.height, video.pix_fmt = 128, 96, "yuv420p"
        for image in frames(20):
            container.mux(video.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(video.encode())
    command = [*STREAM, str(clip), "--model", "centerface", "--fps", "5", "--deadline-ms", "400", "--json"]
    done = subprocess.run([*command, "--url", gateway[1]], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["met"] == summary["frames"] > 5
    metrics = httpx.get(f"{gateway[1]}/metrics").text
    assert 'route="/v1/streams/{stream_id}/ws",status="101"' in metrics
    assert "framegate_websockets 0.0" in metrics


def test_an_end_with_sockets_and_event_streams_open_leaves_nothing(
    gateway: tuple[subprocess.Popen[str], str], directory: Path
) -> None:
    """Run last. Frames are waiting, a socket and an event stream are open; another of each takes nothing."""
    process, url = gateway

    async def main() -> None:
        async with FramegateClient(url) as client, httpx.AsyncClient(base_url=url) as http:
            stream = await client.register("centerface", SHAPE, period_ms=10_000, deadline_ms=9_000, burst=32)
            events = f"/v1/streams/{stream.stream_id}/events"
            async with (
                client.open(stream) as socket,
                client.open(stream),
                http.stream("GET", events, timeout=30) as following,
                http.stream("GET", events, timeout=30),
            ):
                sending = [asyncio.create_task(socket.send([frame])) for frame in frames(16)]
                await asyncio.sleep(0.1)
                os.kill(process.pid, signal.SIGTERM)
                text = "".join([part async for part in following.aiter_text()])
                assert 'event: end\ndata: {"reason":"stopping"}' in text
                found = await asyncio.gather(*sending, return_exceptions=True)
                for each in found:  # all were read: each frame has its outcome, none is lost
                    assert not isinstance(each, GatewayUnreachable), each
                    assert each[0].outcome in {"met", "cancelled"}
                assert found[0][0].outcome == "met"

    began = time.monotonic()
    asyncio.run(main())
    assert process.wait(20) == 0
    assert time.monotonic() - began < 15
    assert not regions(process.pid)
    assert not tritons(directory)
    errors = process.stderr.read()
    assert "Traceback" not in errors
    assert " ERROR " not in errors
