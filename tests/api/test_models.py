"""Models over HTTP: the list, load, unload and pin; and what metrics show of it."""

import asyncio
import threading
import time

import httpx
import pytest
from typer.testing import CliRunner

from gateway.cli import app as cli
from gateway.client.client import FramegateClient
from gateway.client.problems import ProblemError
from tests.api.served import FRAME, Served, problem, wait_until
from tests.stand_in import Model

BEST_EFFORT = {"service_class": "best_effort", "period_ms": 100, "deadline_ms": 10_000}


def entries(served):
    return {entry["name"]: entry for entry in served.http.get("/v1/models").json()["models"]}


def command(served, model, verb, **body):
    return served.http.post(f"/v1/models/{model}/{verb}", **({"json": body} if body else {}))


def state(served, model):
    return entries(served)[model]["state"]


@pytest.fixture
def served():
    """Two models with room for one."""
    with Served(Model("a"), Model("b"), residency={"max_models": 1}, best_effort={"window_ms": 20}) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def unmanaged():
    with Served(Model("a"), Model("b", loaded=False), Model("other", loaded=False), served=("a", "b")) as gateway:
        yield gateway


# ---------------------------------------------------------------- the list


def test_without_a_budget_what_is_served_is_resident(unmanaged):
    document = unmanaged.http.get("/v1/models").json()
    assert {entry["name"]: entry["state"] for entry in document["models"]} == {
        "a": "resident",
        "b": "resident",
        "other": "absent",
    }
    assert document["memory"] == {
        "unit": "bytes",
        "budget": None,
        "headroom": 0,
        "held": 0,
        "region": 0,
        "lost": 0,
        "free": None,
    }
    entry = document["models"][0]
    assert entry["versions"] == [
        {
            "version": "1",
            "state": "ready",
            "reason": "",
            "profiled_shapes": [[8, 8, 3], [16, 16, 3]],
            "single_frame_shapes": [],
        }
    ]
    assert (entry["pins"], entry["barred"], entry["frames_waiting"], entry["size_bytes"]) == ([], False, 0, None)


def test_with_a_budget_it_says_what_is_held_and_by_whom(served):
    """At the start as many are loaded as fit, in their order."""
    document = served.http.get("/v1/models").json()
    assert [(entry["name"], entry["state"]) for entry in document["models"]] == [("a", "resident"), ("b", "absent")]
    memory = document["memory"]
    assert (memory["unit"], memory["budget"], memory["held"], memory["free"]) == ("models", 1, 1, 0)


def test_uses_are_told_in_time_from_now(served):
    with served.stream(model="a", **BEST_EFFORT) as stream:
        assert served.http.post(stream["frames_url"], content=FRAME).json()["results"][0]["outcome"] == "met"
        entry = entries(served)["a"]
        assert 0 <= entry["last_used_ago_ms"] < 10_000
        assert 0 <= entry["next_use_in_ms"] <= 200
    assert entries(served)["b"]["last_used_ago_ms"] is None


def test_a_stream_pins_its_model(served):
    with served.stream(model="a"):
        assert entries(served)["a"]["pins"] == ["stream"]
    wait_until(lambda: entries(served)["a"]["pins"] == [], "the stream has ended")


# ---------------------------------------------------------------- load, unload, pin


def test_a_load_takes_the_place_of_an_idle_model(served):
    assert state(served, "a") == "resident"
    answer = command(served, "b", "load")
    assert (answer.status_code, answer.json()["name"], answer.json()["state"]) == (200, "b", "resident")
    assert state(served, "a") == "absent"
    assert [call.name for call in served.stand_in.log("unload")][-1] == "a"


def test_an_unload_waits_until_the_model_is_gone_and_keeps_it_out(served):
    served.stand_in.models["a"].unload_delay_s = 0.3
    began = time.monotonic()
    answer = command(served, "a", "unload").json()
    assert time.monotonic() - began > 0.25
    assert (answer["state"], answer["barred"], answer["held_bytes"]) == ("absent", True, 0)
    problem(served.register(model="a"), 409, "model_not_loaded")
    assert command(served, "a", "load").json()["barred"] is False
    assert served.register(model="a").status_code == 201


def test_a_model_that_a_stream_needs_is_unloaded_by_force_alone(served):
    with served.stream(model="a") as stream:
        document = problem(command(served, "a", "unload"), 409, "model_pinned")
        assert document["pins"] == ["stream"]
        assert state(served, "a") == "resident"
        assert command(served, "a", "unload", force=True).json()["state"] == "absent"
        answer = served.http.post(stream["frames_url"], content=FRAME)
        assert answer.status_code in (409, 502, 503), answer.text
        assert answer.json()["code"] in ("model_not_loaded", "frame_failed")


def test_a_pin_keeps_a_model_and_is_taken_back(served):
    assert command(served, "a", "pin").json()["pins"] == ["command"]
    wait_until(lambda: state(served, "a") == "resident", "it is not loaded")
    document = problem(command(served, "b", "load"), 409, "no_room_for_model")
    assert document["memory"]["held"] == {"a": 1}
    assert (document["memory"]["unit"], document["memory"]["needed"], document["memory"]["free"]) == ("models", 1, 0)
    assert state(served, "a") == "resident", "nothing was evicted for it"
    assert command(served, "a", "pin", pinned=False).json()["pins"] == []
    assert command(served, "b", "load").json()["state"] == "resident"


def test_a_load_that_fails_says_why_and_when_to_come_back(served):
    served.stand_in.models["b"].load_error = "model.onnx: no such file"
    answer = command(served, "b", "load")
    document = problem(answer, 502, "model_load_failed")
    assert "model.onnx: no such file" in document["detail"]
    assert int(answer.headers["retry-after"]) >= 1
    entry = entries(served)["b"]
    assert (entry["state"], entry["held_bytes"]) == ("failed", 0)
    assert "model.onnx: no such file" in entry["reason"]
    assert entry["retry_in_ms"] >= 0
    served.stand_in.models["b"].load_error = ""
    assert command(served, "b", "load").json()["state"] == "resident", "a command does not wait for the pause"


@pytest.mark.parametrize("verb", ["load", "unload", "pin"])
def test_names_that_lead_nowhere(unmanaged, verb):
    problem(command(unmanaged, "nothing", verb), 404, "unknown_model")
    problem(command(unmanaged, "-odd", verb), 404, "unknown_model")
    for call in ("load", "unload"):
        assert "nothing" not in [made.name for made in unmanaged.stand_in.log(call)]


@pytest.mark.parametrize(
    ("verb", "body"),
    [("unload", {"force": "yes"}), ("unload", {"forced": True}), ("pin", {"pinned": 1}), ("load", {"force": True})],
)
def test_bodies_are_strict(unmanaged, verb, body):
    problem(command(unmanaged, "a", verb, **body), 422, "invalid_request")
    assert state(unmanaged, "a") == "resident"


def test_a_foreign_page_cannot_command(unmanaged):
    """A browser sends a call without a body to anybody, and says from which page."""
    for headers in ({"origin": "https://elsewhere.example"}, {"content-type": "text/plain"}):
        content = b"" if "origin" in headers else b"{}"
        answer = unmanaged.http.post("/v1/models/a/unload", content=content, headers=headers)
        problem(answer, 415, "unsupported_media_type")
    assert state(unmanaged, "a") == "resident"


def test_without_triton_there_is_nothing_to_command():
    served = Served(with_triton=False).start(ready=False)
    try:
        assert served.http.get("/v1/models").json()["models"] == []
        for verb in ("load", "unload", "pin"):
            answer = command(served, "echo", verb)
            problem(answer, 503, "triton_unavailable")
            assert answer.headers["retry-after"]
    finally:
        served.stop()


def test_a_client_that_goes_away_does_not_stop_the_load(served):
    served.stand_in.models["b"].load_delay_s = 0.5
    with pytest.raises(httpx.ReadTimeout):
        served.http.post("/v1/models/b/load", timeout=0.1)
    assert state(served, "b") in ("absent", "loading"), "absent: another one goes first"
    wait_until(lambda: state(served, "b") == "resident", "the load ended with its client")


def test_calls_that_come_together_share_one_load(served):
    served.stand_in.models["b"].load_delay_s = 0.3
    before = len(served.stand_in.log("load"))
    answers = []
    threads = [
        threading.Thread(target=lambda: answers.append(httpx.post(f"{served.url}/v1/models/b/load", timeout=10)))
        for _ in range(5)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answer.json()["state"] for answer in answers] == ["resident"] * 5
    assert [call.name for call in served.stand_in.log("load")[before:]] == ["b"]


def test_a_stopping_server_takes_no_command(unmanaged):
    unmanaged.call(unmanaged.app.state.api.draining.set)
    try:
        problem(command(unmanaged, "a", "unload"), 503, "stopping")
    finally:
        unmanaged.call(unmanaged.app.state.api.draining.clear)
    assert state(unmanaged, "a") == "resident"


# ---------------------------------------------------------------- by the SDK and the command


def test_the_sdk_reads_what_the_gateway_says(served):
    async def conversation():
        async with FramegateClient(served.url) as client:
            before = await client.models()
            loaded = await client.load_model("b")
            with pytest.raises(ProblemError) as refused:
                await client.load_model("nothing")
            gone = await client.unload_model("b")
            return before, loaded, refused.value, gone

    before, loaded, refused, gone = asyncio.run(conversation())
    assert [(model.name, model.state) for model in before.models] == [("a", "resident"), ("b", "absent")]
    assert (before.memory.unit, before.memory.budget, before.memory.free) == ("models", 1, 0)
    assert (loaded.state, gone.state, gone.barred, refused.code) == ("resident", "absent", True, "unknown_model")


def test_the_command_lists_and_pins(served):
    def run(*words):
        return CliRunner().invoke(cli, ["models", *words, "--url", served.url])

    assert run("pin", "a").exit_code == 0
    listed = run()
    assert listed.exit_code == 0, listed.output
    assert listed.stdout.splitlines()[1].split() == ["a/1", "resident", "-", "-", "-", "0", "a", "pin"]
    assert listed.stdout.splitlines()[-1] == "memory: 1 of 1 models held, 0 free"
    refused = run("load", "b")
    assert refused.exit_code == 1
    assert refused.stderr.startswith("error: b needs 1 model of the budget of 1 model; what has to stay leaves 0")


# ---------------------------------------------------------------- metrics


def test_swaps_and_waits_are_in_the_metrics(served):
    """A stream's model is loaded; that goes again, and a frame has it loaded."""
    served.stand_in.models["b"].load_delay_s = 0.2
    with served.stream(model="b", **BEST_EFFORT) as stream:
        command(served, "b", "load")
        command(served, "a", "load")
        assert served.http.post(stream["frames_url"], content=FRAME).status_code == 200
        counters = served.counters()
    assert (counters["framegate_swaps_total", "b"], counters["framegate_swaps_total", "a"]) == (2, 1)
    assert counters["framegate_evictions_total", "eviction"] == 3
    assert counters["framegate_model_loads_total", "b", "loaded"] == 2
    assert counters["framegate_model_load_seconds_sum", "b"] >= 0.4
    assert counters["framegate_model_unloads_total", "a", "unloaded"] == 2
    assert counters["framegate_load_wait_seconds_count", "b"] == 1
    assert counters["framegate_load_wait_seconds_sum", "b"] >= 0.2
    assert (counters["framegate_model_state", "b", "resident"], counters["framegate_model_state", "a", "absent"]) == (
        1,
        1,
    )
    assert (counters["framegate_memory_budget", "models"], counters["framegate_memory_held", "models"]) == (1, 1)


def test_refusals_are_counted(served):
    command(served, "a", "pin")
    before = served.counters()["framegate_model_refusals_total", "no_room"]
    problem(command(served, "b", "load"), 409, "no_room_for_model")
    assert served.counters()["framegate_model_refusals_total", "no_room"] == before + 1
