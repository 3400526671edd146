"""Streams that the gateway opens for calls that belong to no camera."""

from __future__ import annotations

import secrets

from gateway.clock import Clock
from gateway.core.actions import Admitted
from gateway.core.events import CloseStream, RegisterStream
from gateway.core.profile import Profile
from gateway.core.types import NS_PER_MS, Category, ServiceClass, StreamSpec
from gateway.errors import EngineFailed
from gateway.runtime.delivery import Delivery
from gateway.runtime.models import frame_bytes
from gateway.runtime.opaque import HANDLE_BYTES, opaque_category
from gateway.runtime.registrar import Post
from gateway.runtime.results import StreamRecord
from gateway.settings import Settings

_NAME = "/v2"


class HiddenStreams:
    """Best-effort ones, which stay, and real-time ones, which end with their last frame.

    Of the former there are two per category: calls that name a version and calls that do not.

    Args:
        clock: The engine's.
        post: Where events go.
        delivery: Keeps the records.
        profile: Execution times.
        settings: Of the gateway.
    """

    def __init__(self, clock: Clock, post: Post, delivery: Delivery, profile: Profile, settings: Settings) -> None:
        self._clock = clock
        self._post = post
        self._delivery = delivery
        self._profile = profile
        self._timeout_ns = round(settings.best_effort.timeout_ms * NS_PER_MS)
        self._unprofiled_ns = round(settings.best_effort.unprofiled_ms * NS_PER_MS)
        self._best_effort: dict[tuple[Category, bool], StreamRecord] = {}

    def best_effort(self, category: Category, *, follows: bool) -> StreamRecord:
        """Return the stream of a category's calls; opened with the first of them. `follows`: they name no version."""
        return self._best_effort.get((category, follows)) or self._open(category, None, follows=follows)

    def opaque(self, model: str, version: str) -> StreamRecord:
        """Return the stream of a model's opaque calls, which themselves say which version they want."""
        category = opaque_category(model, version)
        return self._best_effort.get((category, True)) or self._open(category, self._unprofiled_ns, follows=True)

    def keep(self, admitted: Admitted, spec: StreamSpec, *, follows: bool) -> StreamRecord:
        """Keep a record of a stream that was just admitted. `follows`: its calls name no version."""
        known = self._profile.has(admitted.category)
        size = frame_bytes(spec.shape, spec.dtype) if known else HANDLE_BYTES
        return self._delivery.add(admitted, spec, size, self._clock.now_ns(), follows=follows)

    def close(self, record: StreamRecord) -> None:
        """End a stream whose frames could not be taken."""
        self._post(CloseStream(record.stream_id))

    def _open(self, category: Category, assumed_ns: int | None, *, follows: bool) -> StreamRecord:
        spec = StreamSpec(
            model=category.model,
            version=category.version,
            shape=category.shape,
            dtype=category.dtype,
            period_ns=self._timeout_ns,
            deadline_ns=self._timeout_ns,
            service_class=ServiceClass.BEST_EFFORT,
            name=_NAME,
            internal=True,
            assumed_ns=assumed_ns,
        )
        for action in self._post(RegisterStream(secrets.token_hex(8), spec)):
            if isinstance(action, Admitted):
                record = self._best_effort[category, follows] = self.keep(action, spec, follows=follows)
                return record
        raise EngineFailed("The engine did not open a stream.")
