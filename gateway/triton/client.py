"""The only conversation with Triton, as plain values: over gRPC, but for calls that can go a leaner way.

Three channels: one carries nothing but inference, one loads and unloads of models, one everything else, so that a
model load or a repository index never queues in front of a job, nor a load in front of a probe. gRPC shares one TCP
connection between channels of equal arguments unless told otherwise, hence ``use_local_subchannel_pool``.

Calls whose frames lie in shared memory go to the HTTP endpoint of the same Triton instead, if it is known
(`gateway.triton.http_channel`).

Nothing here retries, and nothing here gives up on an inference: a deadline on the call would end the
*call* while Triton may still be reading its input from shared memory. Whoever waits decides how long.

What goes wrong is raised as `BackendError` with Triton's own words.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import tritonclient.grpc.aio as triton
from tritonclient.utils import InferenceServerException

from gateway.triton.channel import InferenceChannel, InputTensor, channel_options
from gateway.triton.http_channel import HttpChannel, UnderWay
from gateway.triton.plain import plain
from gateway.triton.tensors import to_array
from gateway.triton.types import (
    BackendError,
    IndexEntry,
    InferenceCall,
    InSharedMemory,
    ModelMetadata,
    Outputs,
    RawCall,
    ServerInfo,
    Tensor,
    TensorInfo,
    latest,
)

T = TypeVar("T")

_STATUS_PREFIX = "StatusCode."


class TritonClient:
    """One Triton. Make it on the event loop that uses it, and close it there.

    Args:
        url: ``host:port`` of the gRPC endpoint.
        max_message_bytes: Limit of one message, both ways. gRPC's own default is 4 MB, and one FP32
            frame of 640x640 is larger.
        http_url: ``host:port`` of the HTTP endpoint; empty: there is none.
        control_timeout_s: Limit of each control call but `load`.

    Attributes:
        over_http: Calls whose frames lie in shared memory go to the HTTP endpoint, see `try_http`.
    """

    def __init__(self, url: str, *, max_message_bytes: int, http_url: str = "", control_timeout_s: float = 5.0) -> None:
        self.url = url
        self.over_http = False
        self._http = HttpChannel(http_url, max_message_bytes) if http_url else None
        self._timeout_s = control_timeout_s
        self._inference = InferenceChannel(url, channel_options(url, max_message_bytes))
        self._control = triton.InferenceServerClient(url, channel_args=channel_options(url, max_message_bytes))
        self._loads = triton.InferenceServerClient(url, channel_args=channel_options(url, max_message_bytes))

    async def close(self) -> None:
        """Close the channels; calls in flight end as cancelled."""
        if self._http is not None:
            self._http.close()
        await self._inference.close()
        await self._loads.close()
        await self._control.close()

    # ------------------------------------------------------------ control

    async def live(self, timeout_s: float | None = None) -> bool:
        """Return whether Triton answers that it is live. Raises `BackendError` when it does not answer."""
        return bool(await _answer(self._control.is_server_live(client_timeout=timeout_s or self._timeout_s)))

    async def server(self) -> ServerInfo:
        """Return name, version and extensions."""
        info = await _answer(self._control.get_server_metadata(client_timeout=self._timeout_s))
        return ServerInfo(info.name, info.version, frozenset(info.extensions))

    async def index(self, timeout_s: float | None = None) -> list[IndexEntry]:
        """Return the state of every model and version in the repository."""
        reply = await _answer(self._control.get_model_repository_index(client_timeout=timeout_s or self._timeout_s))
        return [IndexEntry(m.name, m.version, m.state.lower() or "absent", m.reason) for m in reply.models]

    async def serves(self, model: str, version: str) -> bool:
        """Return whether a version can be called now, whatever the repository holds."""
        try:
            return bool(await _answer(self._control.is_model_ready(model, version, client_timeout=self._timeout_s)))
        except BackendError as error:
            if error.unreachable or error.timed_out:
                raise
            return False

    async def load(self, model: str, timeout_s: float | None, config: str | None = None) -> None:
        """Load all versions of `model` that its policy names. Triton answers when they are loaded.

        After `timeout_s`, nobody waits any more, and Triton goes on; None: it may take as long as it takes.

        With `config`, a whole model configuration as JSON, that takes the place of the repository's, and stays in force
        until the model is unloaded: another load without it changes nothing. Of a loaded model in which only the
        instance groups differ, Triton adds or takes away instances and serves on.
        """
        await _answer(self._loads.load_model(model, config=config, client_timeout=timeout_s))

    async def unload(self, model: str) -> None:
        """Ask Triton to unload `model`. Triton answers at once and frees the memory later."""
        await _answer(self._loads.unload_model(model, client_timeout=self._timeout_s))

    async def metadata(self, model: str, version: str = "") -> ModelMetadata:
        """Return what Triton says about one loaded version; the default one if `version` is empty."""
        meta = await _answer(self._control.get_model_metadata(model, version, client_timeout=self._timeout_s))
        config = await _answer(self._control.get_model_config(model, version, client_timeout=self._timeout_s))
        max_batch_size = int(config.config.max_batch_size)
        skip = 1 if max_batch_size > 0 else 0

        def tensors(items: Sequence[Any]) -> tuple[TensorInfo, ...]:
            return tuple(TensorInfo(t.name, t.datatype, tuple(int(axis) for axis in t.shape[skip:])) for t in items)

        versions, groups = tuple(meta.versions), list(config.config.instance_group)
        return ModelMetadata(
            name=meta.name,
            version=version or latest(versions),
            versions=versions,
            platform=meta.platform,
            max_batch_size=max_batch_size,
            inputs=tensors(meta.inputs),
            outputs=tensors(meta.outputs),
            resources=tuple((r.name, int(r.count)) for group in groups for r in _shared(group)),
            serial=bool(groups) and all(map(_shared, groups)) and not config.config.WhichOneof("scheduling_choice"),
        )

    async def config(self, model: str) -> dict[str, Any]:
        """Return the configuration of a loaded model in the JSON form of ``config.pbtxt``."""
        reply = await _answer(self._control.get_model_config(model, as_json=True, client_timeout=self._timeout_s))
        config: dict[str, Any] = reply["config"]
        return config

    async def plain_config(self, model: str, version: str = "") -> dict[str, Any]:
        """Return the configuration of a loaded model as Triton's HTTP side says it."""
        reply = await _answer(self._control.get_model_config(model, version, client_timeout=self._timeout_s))
        return plain(reply.config)

    async def statistics(self, model: str = "", version: str = "") -> dict[str, Any]:
        """Return Triton's statistics of the versions that are loaded of one model, or of all, as its HTTP side does."""
        reply = await _answer(self._control.get_inference_statistics(model, version, client_timeout=self._timeout_s))
        return plain(reply)

    async def executed(self, model: str) -> int:
        """Return how many frames Triton has executed on `model`, over all versions that are loaded."""
        reply = await _answer(self._control.get_inference_statistics(model, client_timeout=self._timeout_s))
        return sum(int(stats.inference_count) for stats in reply.model_stats)

    async def memory_usage(self, model: str) -> int:
        """Return what Triton says that the loaded versions of `model` hold; 0 if its backend does not report it.

        Only what lies in GPUs counts, if any of it does.
        """
        reply = await _answer(self._control.get_inference_statistics(model, client_timeout=self._timeout_s))
        held = [usage for stats in reply.model_stats for usage in stats.memory_usage]
        on_device = [usage for usage in held if usage.type == "GPU"]
        return sum(int(usage.byte_size) for usage in on_device or held)

    async def region_names(self, timeout_s: float | None = None) -> frozenset[str]:
        """Return the names of all system shared-memory regions that Triton has open."""
        status = await _answer(
            self._control.get_system_shared_memory_status(client_timeout=timeout_s or self._timeout_s)
        )
        return frozenset(status.regions)

    async def register_region(self, name: str, key: str, size: int) -> None:
        """Have Triton open the POSIX shared-memory object `key` (``/name``) under the name `name`."""
        await _answer(self._control.register_system_shared_memory(name, key, size, client_timeout=self._timeout_s))

    async def unregister_region(self, name: str) -> None:
        """Have Triton close one region. Never called without a name: that would close everybody's."""
        if not name:
            raise ValueError("a region to unregister must be named")
        await _answer(self._control.unregister_system_shared_memory(name, client_timeout=self._timeout_s))

    # ------------------------------------------------------------ inference

    async def try_http(self, region: str) -> str:
        """Have calls go to the HTTP endpoint, if one is known and it is that of the Triton which has `region` open.

        Returns:
            Why they do not although an endpoint is known; else empty.
        """
        if self._http is None:
            return ""
        reason = await self._http.why_not(region, self._timeout_s)
        self.over_http = not reason
        return reason and f"{self._http.url} (FRAMEGATE_TRITON__HTTP_URL) is not its HTTP endpoint: {reason}"

    async def infer(self, call: InferenceCall) -> Outputs:
        """Run one batch and return every output, batch axis included.

        The arrays are read-only. Nothing limits the time but a broken connection. `InferenceCall.room` is used where
        calls go over HTTP, and then Triton may write to it for as long as it has not answered.

        Raises:
            BackendError: Triton's refusal or failure, or its absence.
        """
        if self.over_http and self._http is not None and isinstance(call.data, InSharedMemory):
            return await self._http.infer(call, call.data)
        version, outputs = await self._inference.infer(
            call.model,
            call.version,
            [InputTensor(call.input_name, call.datatype, call.shape, call.data)],
            parameters=call.parameters,
        )
        arrays = {tensor.name: to_array(tensor.datatype, tensor.shape, tensor.data) for tensor in outputs}
        return Outputs(arrays, version)

    def prepare(self, call: InferenceCall) -> bytes | None:
        """Return what `begin` takes for calls as this one, wherever their frames lie; None if it cannot run such calls.

        It can where calls go over HTTP and all outputs come in the answer.
        """
        if not self.over_http or self._http is None or call.room is not None:
            return None
        return self._http.prepare(call, call.data) if isinstance(call.data, InSharedMemory) else None

    def begin(self, prepared: bytes, offset: int, done: Callable[[Outputs | BaseException], None]) -> UnderWay | None:
        """Run a batch that lies at `offset` of the region, as `infer` does, but without a task.

        Returns:
            What can be cancelled; None: it was not begun, and `infer` has to do it.

        Args:
            prepared: By `prepare`.
            offset: Of its first byte.
            done: Called once, later, with the outputs or with what `infer` raises. By then the next call can begin.
        """
        if not self.over_http or self._http is None:
            return None
        return self._http.begin(prepared, offset, done)

    async def pass_through(self, call: RawCall) -> tuple[str, list[Tensor]]:
        """Run one call as it came; return the version that ran and its outputs as they come. Otherwise as `infer`."""
        return await self._inference.infer(
            call.model, call.version, call.inputs, wanted=call.outputs, parameters=call.parameters
        )


def _shared(group: Any) -> list[Any]:  # noqa: ANN401 - the generated classes have no types
    """What the instances of a group ask the rate limiter for that is shared by all devices."""
    return [resource for resource in group.rate_limiter.resources if getattr(resource, "global")]


async def _answer(call: Awaitable[T]) -> T:
    """Await one call of the client library; its exception becomes ours."""
    try:
        return await call
    except InferenceServerException as error:
        status = (error.status() or "").removeprefix(_STATUS_PREFIX)
        raise BackendError(error.message() or status or "no reason given", status) from None
