"""Report 38: parallel loads are one load; loads and unloads beside running inference deadlock nothing and nobody."""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from random import Random

import httpx
import pytest

from tests.api.served import FRAME, Served, wait_until
from tests.stand_in import Model

MODELS = ("a", "b")
#: What a call for a model may be answered while others load and unload it.
CLEAN = {200, 409, 503}


def outlook(served, model):
    """Return what the gateway says of a model."""
    return next(entry for entry in served.http.get("/v1/models").json()["models"] if entry["name"] == model)


def test_twenty_parallel_loads_are_one():
    with Served(Model("echo"), Model("b", loaded=False, load_delay_s=1.0), served=["echo"], models=["echo"]) as served:

        def load(_number):
            return served.http.post("/v1/models/b/load")

        with ThreadPoolExecutor(20) as pool:
            answers = list(pool.map(load, range(20)))
        assert {answer.status_code for answer in answers} == {200}
        assert len({answer.text for answer in answers}) == 1
        assert answers[0].json()["state"] == "resident"
        assert len([call for call in served.stand_in.log("load") if call.name == "b"]) == 1


def test_a_load_that_fails_is_told_to_all_and_tried_again_at_once():
    broken = Model("b", loaded=False, load_delay_s=0.3, load_error="its file is cut off")
    with Served(Model("echo"), broken, served=["echo"], models=["echo"]) as served:
        with ThreadPoolExecutor(5) as pool:
            answers = list(pool.map(lambda _: served.http.post("/v1/models/b/load"), range(5)))
        assert {(answer.status_code, answer.json()["code"]) for answer in answers} == {(502, "model_load_failed")}
        assert all("its file is cut off" in answer.json()["detail"] for answer in answers)
        assert len([call for call in served.stand_in.log("load") if call.name == "b"]) == 1
        broken.load_error = ""
        assert served.http.post("/v1/models/b/load").status_code == 200


def test_a_model_with_streams_is_unloaded_only_by_force():
    with Served() as served, served.stream(period_ms=100, deadline_ms=400) as stream:
        refused = served.http.post("/v1/models/echo/unload")
        assert (refused.status_code, refused.json()["code"]) == (409, "model_pinned")
        assert served.http.post(stream["frames_url"], content=FRAME).json()["results"][0]["outcome"] == "met"
        assert served.stand_in.log("unload") == []
        assert served.http.post("/v1/models/echo/unload", json={"force": True}).status_code == 200
        assert not served.stand_in.models["echo"].loaded
        gone = served.http.post(stream["frames_url"], content=FRAME)
        assert (gone.status_code, gone.json()["code"]) == (409, "model_not_loaded")


class Steps:
    """Random commands and calls of several tasks at one time; `accepted` has the commands in order of their answers."""

    def __init__(self, served, seed, urls):
        self.served, self.seed, self.urls = served, seed, urls
        self.answers = Counter()
        self.odd = []
        self.lock = threading.Lock()

    def run(self, tasks, steps):
        with ThreadPoolExecutor(tasks) as pool:
            list(pool.map(lambda task: self._task(Random(f"{self.seed} {task}"), steps), range(tasks)))

    def _task(self, rng, steps):
        with httpx.Client(base_url=self.served.url, timeout=20) as client:
            for _ in range(steps):
                model, kind = rng.choice(MODELS), rng.choice(["load", "unload", "infer", "infer"])
                url = self.urls[model] if kind == "infer" else f"/v1/models/{model}/{kind}"
                answer = client.post(url, content=FRAME if kind == "infer" else None)
                with self.lock:
                    self.answers[kind, answer.status_code] += 1
                    if answer.status_code not in CLEAN:
                        self.odd.append((kind, model, answer.status_code, answer.text[:200]))


@pytest.mark.parametrize("budget", [{}, {"residency": {"max_models": 1}}], ids=["without a budget", "room for one"])
def test_random_loads_unloads_and_calls(budget, length):
    for seed in range(length(1, 50)):
        rng = Random(seed)
        models = [Model(name, loaded=False) for name in MODELS]
        with Served(*models, served=list(MODELS), models=list(MODELS), **budget) as served:
            stand_in = served.stand_in
            stand_in.repository.load_delay_s = lambda call, rng=rng: rng.choice([0, 0, 0.005, 0.03])
            stand_in.repository.unload_delay_s = lambda call, rng=rng: rng.choice([0, 0, 0.005, 0.03])
            stand_in.delay_s = lambda call, rng=rng: rng.choice([0, 0, 0.002])
            urls = {model: open_best_effort(served, model) for model in MODELS}
            stand_in.repository.strays.clear()
            steps = Steps(served, seed, urls)
            began = time.monotonic()
            steps.run(8, length(30, 300))
            assert time.monotonic() - began < 10
            assert steps.odd == []
            assert steps.answers["infer", 200] > 0
            assert stand_in.repository.strays == [], "Triton was asked for a model that was not there"
            settle(served)


def open_best_effort(served, model):
    """Register a stream that may wait; return where its frames go."""
    answer = served.register(model=model, service_class="best_effort", period_ms=10, deadline_ms=5_000)
    return answer.json()["frames_url"]


def settle(served):
    """The last command decides, in the gateway and in Triton alike."""
    triton = served.stand_in.models
    for model in MODELS:
        there = outlook(served, model)
        assert there["state"] in ("resident", "absent"), there
        assert (there["state"] == "resident") == triton[model].loaded, there
        assert not (there["barred"] and triton[model].loaded), there
    for model in MODELS:
        for verb in ("unload", "load", "unload"):
            answer = served.http.post(f"/v1/models/{model}/{verb}")
            assert answer.status_code == 200, answer.text
    assert not any(triton[model].loaded for model in MODELS)
    assert {outlook(served, model)["state"] for model in MODELS} == {"absent"}
    assert served.http.post("/v1/models/a/load").status_code == 200
    wait_until(lambda: triton["a"].loaded, "the last command was not followed")
    assert outlook(served, "a")["state"] == "resident"
    held = served.http.get("/v1/models").json()["memory"]["held"]
    assert held == 1 or served.http.get("/v1/models").json()["memory"]["budget"] is None
