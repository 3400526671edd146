"""Versions of a model that come and go while streams run on it.

Triton loads a new version beside the old one and then, in one step, answers calls that name no version with the new
one; calls in flight end on the old one, and those that name it from then on are refused. A new version that cannot be
loaded changes nothing. So a stream that named no version goes on, and results say which version ran:

    named none ── takes the same frames ──> goes on, on the new version; planned with the old one's times
                  takes others ───────────> ends: model_changed
    named the old one ────────────────────> ends: version_gone

A model that was never in memory here is another such case: what its streams were admitted with is its profile's newest
version, and Triton may turn out to have another one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from gateway.core.events import CloseStream, Event
from gateway.core.profile import Profile
from gateway.core.types import Category
from gateway.errors import DtypeMismatch, ModelNotLoaded, ShapeMismatch, UnknownModel
from gateway.runtime.delivery import Delivery
from gateway.runtime.models import Catalogue
from gateway.runtime.results import CLOSED_WITH_MODEL, CLOSED_WITH_VERSION, StreamRecord

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StreamVersion:
    """Which version a stream runs on.

    Attributes:
        version: The one that its next frame runs on, as far as is known.
        tested: The one whose times it was admitted with.
        retest: The version that runs is profiled, and is slower than what the admission rests on: what was promised may
            not hold. Registered again, the stream is tested with the new times. None: it is not profiled, so nobody
            knows.
    """

    version: str
    tested: str
    retest: bool | None = False


class Versions:
    """See the module's docstring.

    Args:
        catalogue: Tells which versions are served.
        delivery: Has the streams.
        profile: Execution times.
        post: Takes events.
    """

    def __init__(
        self, catalogue: Catalogue, delivery: Delivery, profile: Profile, post: Callable[[Event], object]
    ) -> None:
        self._catalogue = catalogue
        self._delivery = delivery
        self._profile = profile
        self._post = post
        self._noted: dict[str, str] = {}

    def changed(self, model: str) -> None:
        """Versions of a model have come or gone: end the streams that cannot go on."""
        note = self.note(model)
        if note and self._noted.get(model) != note:
            log.warning("model %s: %s", model, note)
        self._noted[model] = note
        for record in list(self._delivery.streams.values()):
            if record.spec.model != model or record.state != "active" or record.spec.internal:
                continue
            reason = self._why_not(record)
            if reason:
                log.warning("stream %s (%s) ends: %s", record.stream_id, record.spec.name or model, reason)
                record.state, record.close_reason = "closing", reason
                self._post(CloseStream(record.stream_id))

    def _why_not(self, record: StreamRecord) -> str:
        """Return why a stream cannot go on; empty if it can."""
        spec = replace(record.spec, version="") if record.follows else record.spec
        try:
            self._catalogue.resolve(spec, Profile())
        except UnknownModel:
            return CLOSED_WITH_VERSION
        except (ShapeMismatch, DtypeMismatch):
            return CLOSED_WITH_MODEL
        except ModelNotLoaded:
            return ""  # it has gone as a whole, and comes back or not
        return ""

    def note(self, model: str) -> str:
        """Return what is to be said of the version of a model that is served, if it is not profiled; else nothing."""
        profiled = self._profile.versions(model)
        version = self._newest(model)
        if not profiled or not version or version in profiled:
            return ""
        return (
            f"Version {version}, which is served, is not in the profile, which has {', '.join(profiled)}: profile it, "
            "and restart the gateway with that profile. Until then streams that named no version run on times that "
            "were not measured, and new ones are refused."
        )

    def _newest(self, model: str) -> str:
        """Return the version that runs where none is named, as far as is known; empty: none is."""
        try:
            return self._catalogue.known(model).version
        except (UnknownModel, ModelNotLoaded):
            return ""

    def stream_version(self, record: StreamRecord) -> StreamVersion:
        """Return which version a stream runs on."""
        tested = record.spec.version
        if not record.follows:
            return StreamVersion(tested, tested)
        version = self._newest(record.spec.model) or tested
        return StreamVersion(version, tested, self._slower(record.category, version))

    def _slower(self, category: Category, version: str) -> bool | None:
        """Whether some batch of a category takes longer on another version; None: its times are not known."""
        other = replace(category, version=version)
        if version == category.version or not self._profile.has(category):
            return False
        if not self._profile.has(other):
            return None
        largest = self._profile.max_batch(category)
        return self._profile.max_batch(other) < largest or any(
            self._profile.execution_ns(other, n) > self._profile.execution_ns(category, n)
            for n in range(1, largest + 1)
        )
