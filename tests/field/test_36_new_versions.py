"""Report 36: while a new version loads, the old one serves on; if the new one is damaged, nothing changes."""

import asyncio
import itertools
from dataclasses import replace

import pytest

from gateway.core.profile import Profile
from gateway.core.types import ModelState, Outcome
from gateway.errors import ModelLoadFailed, StreamClosed
from gateway.runtime.versions import StreamVersion
from gateway.triton.embedded import EmbeddedTriton
from tests.api.served import FRAME, Served
from tests.e2e.adding_models import SHAPE, put_version
from tests.runtime_support import admitted, frame, gateway_on_stand_in, make_profile, running_gateway, until
from tests.stand_in import Model

PERIOD_S = 1 / 30
DEADLINE_MS = 400
VALUE = 7


class Camera:
    """Sends 30 frames a second, whatever becomes of them, until it is told to stop."""

    def __init__(self, gateway, stream):
        self.results = []
        self._gateway, self._stream = gateway, stream
        self._waiting = []
        self._task = asyncio.create_task(self._send())

    async def _send(self):
        clock = asyncio.get_running_loop().time
        began_s = clock()
        for number in itertools.count(1):
            self._waiting += self._gateway.submit(self._stream.stream_id, frame(VALUE, SHAPE))
            await asyncio.sleep(max(0.0, began_s + number * PERIOD_S - clock()))

    async def stop(self):
        self._task.cancel()
        await asyncio.wait((self._task,))
        self.results = [await ticket.result for ticket in self._waiting]
        return self.results


def ran(results):
    """Return the versions that ran, in order, each once for each stretch."""
    return [version for version, _ in itertools.groupby(result.version for result in results)]


@pytest.mark.e2e
def test_a_stream_goes_over_to_the_new_version_once(tmp_path, length):
    repository = tmp_path / "models"
    put_version(repository, "camera", 1)

    async def main(server):
        profile = make_profile(models=["camera"], batches=(1, 2, 4, 8), execution_ms=10)
        async with running_gateway(server.grpc_url, profile, wait_ready=False) as gateway:
            await until(lambda: gateway.ready, 30)
            stream = await admitted(
                gateway, model="camera", shape=SHAPE, period_ms=PERIOD_S * 1_000, deadline_ms=DEADLINE_MS
            )
            old = await admitted(gateway, model="camera", version="1", shape=SHAPE, period_ms=500, deadline_ms=1_500)
            camera = Camera(gateway, stream)
            await asyncio.sleep(length(0.6, 5))

            put_version(repository, "camera", 2)
            assert (await gateway.load_model("camera")).state is ModelState.RESIDENT
            await asyncio.sleep(length(0.6, 5))
            assert gateway.stream_version(stream) == StreamVersion(version="2", tested="1", retest=None)
            with pytest.raises(StreamClosed, match="the version of the model that it named"):
                gateway.submit(old.stream_id, frame(VALUE, SHAPE))
            assert old.close_reason == "version_gone"

            put_version(repository, "camera", 3, b"not a model")
            with pytest.raises(ModelLoadFailed, match="Protobuf parsing failed"):
                await gateway.load_model("camera")
            await asyncio.sleep(length(1.3, 5))  # the watch has looked since
            assert stream.state == "active"
            assert {view.model: view.state for view in gateway.model_views()} == {"camera": ModelState.RESIDENT}

            (repository / "camera").rename(tmp_path / "away")  # as somebody does who copies a directory anew
            await asyncio.sleep(length(1.3, 5))
            (tmp_path / "away").rename(repository / "camera")

            results = await camera.stop()
            assert {result.outcome for result in results} <= {Outcome.MET, Outcome.MISSED}
            assert ran(results) == ["1", "2"]
            assert all(result.outputs["sum"].max() == VALUE + int(result.version) for result in results)
            assert max(result.queue_ms for result in results) < DEADLINE_MS, "none was held longer than its deadline"
            assert gateway.triton_ready

    with EmbeddedTriton(repository, tmp_path / "triton.log") as server:
        asyncio.run(main(server))


def test_frames_that_named_the_old_version_do_not_take_the_others_along():
    """A batch of both kinds is refused as a whole when the version has gone: those that named none are answered."""

    async def main():
        async with gateway_on_stand_in(make_profile(execution_ms=5)) as (gateway, triton):
            free = await admitted(gateway, period_ms=100, deadline_ms=2_000)
            named = await admitted(gateway, version="1", period_ms=100, deadline_ms=2_000)
            triton.delay_s = lambda call: 0.1
            first = gateway.submit(free.stream_id, frame(1))[0]  # the device is busy: the next two share a batch
            await until(lambda: triton.log("infer"))
            triton.models["echo"].versions = ("2",)  # by somebody else's doing, and the watch has not looked
            both = [gateway.submit(stream.stream_id, frame(2))[0] for stream in (free, named)]
            triton.delay_s = lambda call: 0.0
            results = [await ticket.result for ticket in (first, *both)]
            assert [result.outcome for result in results[:2]] == [Outcome.MET, Outcome.MET]
            assert results[1].version == "2"
            assert results[2].outcome is Outcome.FAILED
            assert "version 1" in results[2].reason
            await until(lambda: named.close_reason == "version_gone")
            assert gateway.triton_ready, "a version that has gone is no lost Triton"
            assert free.state == "active"

    asyncio.run(main())


def test_what_callers_see_of_it():
    with Served() as served, served.stream(period_ms=100, deadline_ms=400) as stream:

        def versions():
            result = served.http.post(stream["frames_url"], content=FRAME).json()["results"][0]
            state = served.http.get(f"/v1/streams/{stream['stream_id']}").json()
            return result["version"], state["version"], state["tested_version"], state["retest"]

        assert versions() == ("1", "1", "1", False)
        served.stand_in.models["echo"].next_versions = ("2",)
        answer = served.http.post("/v1/models/echo/load")
        assert answer.status_code == 200
        assert answer.json()["reason"].startswith("Version 2, which is served, is not in the profile")
        assert "restart the gateway" in answer.json()["reason"]
        assert versions() == ("2", "2", "1", None)


def test_a_new_version_that_takes_other_frames_ends_the_stream():
    async def main():
        async with gateway_on_stand_in(make_profile()) as (gateway, triton):
            stream = await admitted(gateway)
            triton.models["echo"].next_versions, triton.models["echo"].dims = ("2",), (16, 16, 3)
            await gateway.load_model("echo")
            assert (stream.state, stream.close_reason) == ("closed", "model_changed")

    asyncio.run(main())


def test_a_version_that_is_not_profiled_is_said_once_in_the_log(caplog):
    async def main():
        async with gateway_on_stand_in(make_profile()) as (gateway, triton):
            assert gateway.model_note("echo") == ""
            stream = await admitted(gateway)
            triton.models["echo"].next_versions = ("2",)
            for _ in range(2):
                await gateway.load_model("echo")
            assert gateway.stream_version(stream) == StreamVersion("2", "1", retest=None)
            note = gateway.model_note("echo")
            assert note.startswith("Version 2, which is served, is not in the profile, which has 1")
            assert caplog.text.count(note) == 1
            triton.models["echo"].next_versions = ("1",)
            await gateway.load_model("echo")
            assert (gateway.model_note("echo"), gateway.stream_version(stream).retest) == ("", False)

    asyncio.run(main())


def test_of_a_model_without_any_profile_nothing_is_said(caplog):
    async def main():
        async with gateway_on_stand_in(make_profile(), Model("echo"), Model("other", loaded=False)) as (gateway, _):
            await gateway.load_model("other")
            assert (gateway.model_note("other"), gateway.model_note("nobody")) == ("", "")
            assert "not in the profile" not in caplog.text

    asyncio.run(main())


@pytest.mark.parametrize(("slower", "retest"), [(3.0, True), (1.0, False)])
def test_a_stream_says_when_its_new_version_is_slower(slower, retest):
    entries = make_profile(execution_ms=1.0).entries
    new = [replace(e, version="2", p50_ms=slower, p99_ms=slower, max_ms=slower) for e in entries]

    async def main():
        async with gateway_on_stand_in(Profile(entries=(*entries, *new)), Model("echo")) as (gateway, triton):
            stream = await admitted(gateway)
            assert gateway.stream_version(stream) == StreamVersion("1", "1")
            triton.models["echo"].next_versions = ("2",)
            await gateway.load_model("echo")
            assert gateway.stream_version(stream) == StreamVersion("2", "1", retest=retest)
            assert (await admitted(gateway)).spec.version == "2", "one that comes now is tested with the new times"

    asyncio.run(main())
