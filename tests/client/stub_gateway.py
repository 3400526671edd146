"""A stand-in for the gateway: a real ASGI application that answers as docs/api.md says, with settable faults."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

EVIDENCE = {
    "test": "sporadic",
    "phase": 2,
    "reason": None,
    "utilization": 0.25,
    "horizon_ms": 180.0,
    "frames_checked": 0,
    "worst_latency_ms": 61.0,
    "first_miss": None,
}
FIRST_MISS = {
    "model": "centerface",
    "version": "1",
    "shape": [144, 176, 3],
    "dtype": "UINT8",
    "streams": ["abc", "this"],
    "names": ["door", "yard"],
    "frames": 2,
    "release_ms": 100.0,
    "deadline_ms": 200.0,
    "finish_ms": 225.5,
    "late_ms": 25.5,
}
MEMORY = {
    "unit": "bytes",
    "budget": 96 << 20,
    "headroom": 0,
    "held": 64 << 20,
    "region": 0,
    "lost": 0,
    "free": 32 << 20,
}
OFFERS = [
    {"field": "period_ms", "value": 250.0, "fps": 4.0},
    {"field": "deadline_ms", "value": 480.0},
    {"field": "shape", "value": [72, 88, 3]},
]


def problem(status, code, detail, headers=None, **members):
    document = {"type": f"urn:framegate:problem:{code}", "title": code, "status": status, "code": code}
    return JSONResponse(
        {**document, "detail": detail, **members}, status, headers, media_type="application/problem+json"
    )


def model_entry(name, **fields):
    """One entry of `GET /v1/models`: a model that is loaded and idle."""
    version = {
        "version": "1",
        "state": "ready",
        "reason": "",
        "profiled_shapes": [[4, 6, 3]],
        "single_frame_shapes": [],
    }
    return {
        "name": name,
        "state": "resident",
        "reason": "",
        "versions": [version],
        "size_bytes": 64 << 20,
        "held_bytes": 64 << 20,
        "pins": [],
        "swap_region": False,
        "barred": False,
        "frames_waiting": 0,
        "last_used_ago_ms": None,
        "next_use_in_ms": None,
        "retry_in_ms": None,
    } | fields


@dataclass
class StubGateway:
    """Faults: `refuse` refuses registrations, `frame_answers` are used up one per frame call before echoes."""

    refuse: bool = False
    prefix: str = "s"
    answer_after: asyncio.Event | None = None
    frame_answers: list = field(default_factory=list)
    streams: dict = field(default_factory=dict)
    bodies: list = field(default_factory=list)
    calls: list = field(default_factory=list)
    sockets: int = 0
    model_entries: dict = field(default_factory=lambda: {"centerface": model_entry("centerface")})
    memory: dict = field(default_factory=lambda: dict(MEMORY))
    model_problem: Response | None = None

    def app(self):
        return Starlette(
            routes=[
                Route("/v1/streams", self.register, methods=["POST"]),
                Route("/v1/streams", self.list, methods=["GET"]),
                Route("/v1/admission/check", self.check, methods=["POST"]),
                Route("/v1/streams/{id}", self.one, methods=["GET", "DELETE"]),
                Route("/v1/streams/{id}/frames", self.frames, methods=["POST"]),
                WebSocketRoute("/v1/streams/{id}/ws", self.ws),
                Route("/v1/streams/{id}/results", self.results, methods=["GET"]),
                Route("/v1/models", self.models, methods=["GET"]),
                Route("/v1/models/{model}/{verb}", self.command, methods=["POST"]),
                Route("/v2/health/ready", self.ready, methods=["GET"]),
                Route("/metrics", self.metrics, methods=["GET"]),
            ]
        )

    async def register(self, request: Request) -> Response:
        body = json.loads(await request.body())
        self.bodies.append(body)
        if self.refuse:
            evidence = {**EVIDENCE, "reason": "deadline_miss", "utilization": 0.97, "first_miss": FIRST_MISS}
            return problem(409, "not_schedulable", "it does not fit", evidence=evidence, counter_offers=OFFERS)
        stream_id = f"{self.prefix}{len(self.streams)}"
        self.streams[stream_id] = self.describe(stream_id, body)
        return JSONResponse({**self.streams[stream_id], "admission": EVIDENCE}, 201)

    def describe(self, stream_id, body):
        period_ms = body["period_ms"] if "period_ms" in body else 1e3 / body["fps"]
        return {
            "stream_id": stream_id,
            "name": body.get("name", ""),
            "state": "active",
            "model": body["model"],
            "shape": body["shape"],
            "dtype": "UINT8",
            "period_ms": period_ms,
            "deadline_ms": body["deadline_ms"],
            "burst": body.get("burst", 1),
            "jitter_ms": body.get("jitter_ms", 0.0),
            "worst_latency_ms": EVIDENCE["worst_latency_ms"],
            "observed_worst_latency_ms": None,
            "accepted": 0,
            "in_flight": 0,
            "outcomes": dict.fromkeys(["met", "missed", "expired", "cancelled", "failed"], 0),
            "frames_url": f"/v1/streams/{stream_id}/frames",
        }

    async def check(self, request: Request) -> Response:
        self.bodies.append(json.loads(await request.body()))
        evidence = {**EVIDENCE, "reason": "utilization" if self.refuse else None}
        offers = OFFERS[:1] if self.refuse else []
        answer = {"admitted": not self.refuse, "evidence": evidence, "counter_offers": offers}
        return JSONResponse({**answer, "detail": "it does not fit" if self.refuse else "it fits"})

    async def list(self, _request: Request) -> Response:
        return JSONResponse({"streams": list(self.streams.values()), "utilization": 0.5})

    async def one(self, request: Request) -> Response:
        stream = self.streams.get(request.path_params["id"])
        if stream is None:
            return problem(404, "stream_not_found", "there is no such stream")
        if request.method == "DELETE":
            stream["state"] = "closed"
        return JSONResponse(stream)

    async def ws(self, socket: WebSocket) -> None:
        """One message, one frames call; labels come back."""
        self.sockets += 1
        stream_id = socket.path_params["id"]
        stream = self.streams.get(stream_id)
        if stream is None:
            await socket.send_denial_response(problem(404, "stream_not_found", "there is no such stream"))
            return
        if stream["state"] != "active":
            await socket.send_denial_response(problem(410, "stream_closed", "the stream is closed"))
            return
        await socket.accept()
        index, label = 0, None
        with suppress(WebSocketDisconnect):
            while True:
                message = await socket.receive()
                if message["type"] == "websocket.disconnect":
                    return
                if message.get("text") is not None:
                    label = json.loads(message["text"])["timestamp_ms"]
                    continue
                answer = await self.take(stream_id, message["bytes"], {})
                document = json.loads(answer.body)
                for each in document["results"] if answer.status_code == 200 else [{"error": document}]:
                    labelled = {} if "error" in each else {"timestamp_ms": label}
                    await socket.send_text(json.dumps({**each, **labelled, "message": index}))
                index, label = index + 1, None

    async def frames(self, request: Request) -> Response:
        return await self.take(request.path_params["id"], await request.body(), request.query_params)

    async def take(self, stream_id, body, query) -> Response:
        stream = self.streams.get(stream_id)
        if stream is None:
            return problem(404, "stream_not_found", "there is no such stream")
        if self.answer_after is not None:
            await self.answer_after.wait()
        if self.frame_answers:
            return self.frame_answers.pop(0)
        if stream["state"] != "active":
            return problem(410, "stream_closed", "the stream is closed")
        frames = np.frombuffer(body, np.uint8).reshape(-1, *stream["shape"])
        first = stream["accepted"]
        stream["accepted"] += len(frames)
        stream["outcomes"]["met"] += len(frames)
        if query.get("wait") == "false":
            return JSONResponse({"seqs": list(range(first, stream["accepted"])), "results_url": "r"}, 202)
        return JSONResponse({"results": [self.result(first + k, frame) for k, frame in enumerate(frames)]})

    @staticmethod
    def result(seq, frame, outcome="met"):
        """Echo the frame's mean, and its first rows as FP32."""
        data = {"datatype": "FP32", "shape": [2, 3], "data": [0.5, 1.5, None, float(frame.mean()), 4.0, 5.0]}
        return {
            "seq": seq,
            "outcome": outcome,
            "reason": "",
            "latency_ms": 12.5,
            "deadline_ms": 200.0,
            "batch": 2,
            "queue_ms": 2.0,
            "execute_ms": 10.5,
            "degraded": False,
            "shape": list(frame.shape),
            "outputs": {"echo": data},
        }

    async def results(self, request: Request) -> Response:
        self.calls.append(dict(request.query_params))
        frame = np.zeros((1, 1, 3), np.uint8)
        return JSONResponse({"results": [self.result(7, frame)], "next_after": 7, "state": "active"})

    async def models(self, _request: Request) -> Response:
        return JSONResponse({"models": list(self.model_entries.values()), "memory": self.memory})

    async def command(self, request: Request) -> Response:
        """Load, unload or pin a model; `model_problem` is answered instead if it is set."""
        name, verb = request.path_params["model"], request.path_params["verb"]
        body = json.loads(await request.body())
        self.calls.append((verb, name, body))
        if self.model_problem is not None:
            return self.model_problem
        if name not in self.model_entries:
            return problem(404, "unknown_model", f"there is no model {name!r}", model=name)
        model = self.model_entries[name]
        if verb == "pin":
            model["pins"] = ["command"] if body["pinned"] else []
        else:
            model.update(state="resident" if verb == "load" else "absent", barred=verb == "unload")
        return JSONResponse(model)

    async def ready(self, _request: Request) -> Response:
        return Response(status_code=503 if self.refuse else 200)

    async def metrics(self, _request: Request) -> Response:
        return PlainTextResponse('framegate_frames_total{model="centerface",outcome="met"} 3.0\n')
