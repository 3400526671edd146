"""An async client of Framegate.

::

    async with FramegateClient("http://127.0.0.1:8000") as client:
        stream = await client.register(model="centerface", shape=(144, 176, 3), fps=10, deadline_ms=200)
        [result] = await client.post_frames(stream, [frame])  # frame: uint8 [144, 176, 3], RGB
        print(result.outcome, result.latency_ms, result.outputs["heatmap"].shape)
        await client.close(stream)

It needs nothing of the server. A camera that sends much may `open` a WebSocket for its frames. Every error of the
gateway is a `ProblemError`; a refused stream is a `NotSchedulable` with evidence and counter-offers; no answer is
`GatewayUnreachable`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from gateway.client import wire
from gateway.client.connection import OCTETS
from gateway.client.models import ModelCalls
from gateway.client.problems import FRAME_OUTCOMES, GatewayUnreachable, ProblemError
from gateway.client.socket import StreamSocket
from gateway.client.types import Admission, CounterOffer, Evidence, FrameResult, StreamHandle, StreamInfo


class FramegateClient(ModelCalls):
    """One gateway. Safe for many tasks of one event loop at a time.

    Args:
        url: Of the gateway.
        timeout_s: Longest wait for an answer; a long poll waits this much longer than it asks for, and the load or
            unload of a model longer.
        binary: Have the outputs of `post_frames` and `results` come as bytes instead of JSON numbers: less work on both
            sides where they are large, and bit by bit what the model gave (NaN included). The arrays cannot be written
            to then, and elements of BYTES are `bytes` instead of `str`.
        transport: For tests: an httpx transport instead of the network.
    """

    # ------------------------------------------------------------ streams

    async def register(
        self,
        model: str,
        shape: Sequence[int],
        *,
        deadline_ms: float,
        fps: float | None = None,
        period_ms: float | None = None,
        **fields: Any,  # noqa: ANN401 - whatever else `POST /v1/streams` takes
    ) -> StreamHandle:
        """Ask for a stream.

        Args:
            model: Triton's name of it.
            shape: One frame in the model's input layout, here ``(H, W, 3)``.
            deadline_ms: Relative deadline of every frame.
            fps: Rate; with a `burst`, of groups. Give this or `period_ms`.
            period_ms: Time between two frames or groups.
            **fields: ``version, dtype, frames, burst, jitter_ms, start_in_ms, on_late, on_excess,
                service_class, swapping, name``; see the API reference.

        Raises:
            NotSchedulable: It was refused.
            ProblemError: Unknown model, invalid field, Triton away.
        """
        body = wire.stream_body(model, shape, deadline_ms, fps=fps, period_ms=period_ms, fields=fields)
        answer = await self._json("POST", "/v1/streams", body=body)
        return StreamHandle(
            stream_id=str(answer["stream_id"]),
            frames_url=str(answer["frames_url"]),
            model=str(answer["model"]),
            shape=tuple(answer["shape"]),
            dtype=str(answer["dtype"]),
            period_ms=float(answer["period_ms"]),
            deadline_ms=float(answer["deadline_ms"]),
            evidence=Evidence.from_json(answer["admission"]),
            burst=int(answer.get("burst", 1)),
            jitter_ms=float(answer.get("jitter_ms", 0.0)),
            service_class=str(answer.get("service_class", "real_time")),
            on_excess=str(answer.get("on_excess", "refuse")),
            raw=answer,
        )

    async def check(
        self,
        model: str,
        shape: Sequence[int],
        *,
        deadline_ms: float,
        fps: float | None = None,
        period_ms: float | None = None,
        **fields: Any,  # noqa: ANN401
    ) -> Admission:
        """Ask whether a stream would be admitted now; nothing changes. Arguments as of `register`."""
        body = wire.stream_body(model, shape, deadline_ms, fps=fps, period_ms=period_ms, fields=fields)
        answer = await self._json("POST", "/v1/admission/check", body=body)
        return Admission(
            admitted=bool(answer["admitted"]),
            evidence=Evidence.from_json(answer["evidence"]),
            counter_offers=tuple(CounterOffer.from_json(offer) for offer in answer["counter_offers"]),
            detail=str(answer.get("detail") or ""),
        )

    async def streams(self) -> list[StreamInfo]:
        """Return the streams that are not over."""
        answer = await self._json("GET", "/v1/streams")
        return [wire.stream_info(entry) for entry in answer["streams"]]

    async def stream(self, stream: StreamHandle | str) -> StreamInfo:
        """Return state and counts of one stream."""
        return wire.stream_info(await self._json("GET", f"/v1/streams/{wire.stream_id(stream)}"))

    async def close(self, stream: StreamHandle | str) -> StreamInfo:
        """Close a stream; frames that wait are still served."""
        return wire.stream_info(await self._json("DELETE", f"/v1/streams/{wire.stream_id(stream)}"))

    # ------------------------------------------------------------ frames

    @asynccontextmanager
    async def open(self, stream: StreamHandle) -> AsyncIterator[StreamSocket]:
        """Open a WebSocket for a stream's frames: cheaper for both sides than a call per frame.

        Raises:
            ProblemError: The stream is over, or the gateway does not know it.
            GatewayUnreachable: There is no connection.
        """
        socket = await StreamSocket.connect(self.url, stream, self.timeout_s)
        try:
            yield socket
        finally:
            await socket.aclose()

    async def post_frames(
        self, stream: StreamHandle, frames: Sequence[wire.Frame], *, timestamp_ms: float | None = None
    ) -> list[FrameResult]:
        """Send frames and wait for their results, in order.

        Args:
            stream: As `register` returned it.
            frames: Arrays of the stream's shape, or their bytes.
            timestamp_ms: A time of your own; it comes back with the results.

        Raises:
            ProblemError: The frames were not accepted. A frame that was accepted and then expired, failed
                or was cancelled is a result with that outcome, not an exception.
        """
        try:
            headers = {**OCTETS, **self._accept}
            if timestamp_ms is not None:
                headers["framegate-timestamp-ms"] = repr(timestamp_ms)
            body = wire.join_frames(stream, frames)
            return wire.results_of(await self._request("POST", stream.frames_url, content=body, headers=headers))
        except ProblemError as error:
            if error.code not in FRAME_OUTCOMES:
                raise
            return [wire.result_of_problem(error)]

    async def post_frames_later(self, stream: StreamHandle, frames: Sequence[wire.Frame]) -> Mapping[str, Any]:
        """Send frames without waiting for them; their results come by `results`."""
        return await self._json(
            "POST", stream.frames_url, content=wire.join_frames(stream, frames), params={"wait": "false"}
        )

    async def results(
        self, stream: StreamHandle | str, *, after: int = -1, timeout_ms: float = 10_000.0
    ) -> list[FrameResult]:
        """Wait for ended frames with a sequence number above `after`; empty when time is up.

        Args:
            stream: The stream or its id.
            after: The last sequence number that was seen; -1 at first.
            timeout_ms: Longest wait at the gateway.
        """
        answer = await self._request(
            "GET",
            f"/v1/streams/{wire.stream_id(stream)}/results",
            headers=self._accept,
            params={"after": str(after), "timeout_ms": str(timeout_ms)},
            timeout_s=self.timeout_s + timeout_ms / 1e3,
        )
        return wire.results_of(answer)

    # ------------------------------------------------------------ the gateway

    async def ready(self) -> bool:
        """Return whether the gateway takes requests; False also while it cannot be reached."""
        try:
            answer = await self._request("GET", "/v2/health/ready")
        except GatewayUnreachable:
            return False
        return answer.is_success

    async def profile(self) -> Mapping[str, Any]:
        """Return the profile that admission rests on."""
        return await self._json("GET", "/v1/profile")

    async def metrics(self) -> str:
        """Return the gateway's Prometheus metrics as text."""
        answer = await self._request("GET", "/metrics")
        wire.raise_for_problem(answer)
        return answer.text
