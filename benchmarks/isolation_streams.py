"""The streams of `benchmarks.isolation`: the cameras that are kept of those that a gateway admits, and best effort."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import httpx
import numpy as np

from benchmarks.http_load import Pool
from benchmarks.limit import asked, kinds
from gateway.core.profile import Profile
from gateway.core.types import NS_PER_MS, NS_PER_S, StreamSpec

#: Of the load that was admitted, what the cameras ask for at least.
LOAD = 0.8
#: What senders declare: they share their processor core with the gateway and with each other.
JITTER_MS = 40.0
#: Best-effort frames come at so many times the rate that an idle device could serve.
DEMAND = 2
#: Best effort: larger pictures than those of the cameras, as of a search in recordings, and small answers.
BEST_EFFORT_MODEL = "mobilenet_v2"
BEST_EFFORT_SIZE = (224, 224)
#: A best-effort frame that has waited so long is given up.
TIMEOUT_MS = 1_000
MOST = 400


@dataclass(frozen=True)
class Sender:
    """One registered stream: what is sent to it, and when."""

    spec: StreamSpec
    request: bytes
    phase_s: float

    def times_s(self, epoch_s: float, seconds: float, faster: int = 1) -> list[float]:
        """Instants of its frames."""
        period_s = self.spec.period_ns / NS_PER_S / faster
        return [epoch_s + self.phase_s / faster + n * period_s for n in range(int(seconds / period_s))]


@dataclass(frozen=True)
class Streams:
    """What was registered; `rogue` is the camera that misbehaves, `kept` the load as a share of what was admitted."""

    cameras: list[Sender]
    rogue: Sender
    best_effort: Sender
    kept: float
    admitted: int


class Registry:
    """Registers streams over HTTP, as any client would."""

    def __init__(self, url: str) -> None:
        self._http = httpx.Client(base_url=url, timeout=30)
        host, port = url.removeprefix("http://").split(":")
        self.pool = Pool(host, int(port))

    def register(self, spec: StreamSpec, **fields: object) -> tuple[str, Sender] | None:
        """Return the stream's id and its sender; None if it is refused."""
        shape = list(spec.shape)
        body = {"model": spec.model, "shape": shape, "period_ms": spec.period_ns / 1e6, "name": spec.name, **fields}
        answer = self._http.post("/v1/streams", json={"deadline_ms": spec.deadline_ns / 1e6, **body})
        if answer.status_code == httpx.codes.CONFLICT:
            return None
        answer.raise_for_status()
        stream_id = str(answer.json()["stream_id"])
        seed = int(stream_id, 16)
        picture = np.random.default_rng(seed).integers(0, 256, spec.shape, dtype=np.uint8).tobytes()
        phase_s = random.Random(seed).uniform(0, spec.period_ns / NS_PER_S)
        return stream_id, Sender(spec, self.pool.request(f"/v1/streams/{stream_id}/frames", picture), phase_s)

    def close(self, stream_id: str) -> None:
        """Close a stream."""
        self._http.delete(f"/v1/streams/{stream_id}").raise_for_status()


def best_effort_spec(profile: Profile) -> StreamSpec:
    """The best-effort stream, at `DEMAND` times what the device could do of it at best."""
    spec = StreamSpec(BEST_EFFORT_MODEL, "1", (*BEST_EFFORT_SIZE, 3), NS_PER_S, TIMEOUT_MS * NS_PER_MS, name="search")
    typical = profile.typical(spec.category())
    fastest_ns = min(typical[n] / n for n in range(1, len(typical)))
    return replace(spec, period_ns=round(fastest_ns / DEMAND))


def fill(registry: Registry, profile: Profile) -> Streams:
    """Register best effort, then cameras in turn until each kind is refused; keep those that make up the load."""
    found = registry.register(best_effort_spec(profile), service_class="best_effort")
    if found is None:
        raise SystemExit("best effort was refused")
    cameras: list[tuple[str, Sender]] = []
    waiting = kinds()
    while waiting and len(cameras) < MOST:
        for spec in list(waiting):
            taken = registry.register(spec, jitter_ms=JITTER_MS)
            if taken is None:
                waiting.remove(spec)
            else:
                cameras.append(taken)
    total = load = asked(profile, _specs(cameras))
    kept = list(cameras)
    while len(kept) > 2:
        less = asked(profile, _specs(kept[:-1]))
        if less < LOAD * total:
            break
        registry.close(kept.pop()[0])
        load = less
    if len(kept) < 2:
        raise SystemExit(f"two cameras do not fit: is the machine busy? {profile.entries}")
    rogue = kept[-1][1]
    others = [sender for _, sender in kept if sender is not rogue]
    return Streams(others, rogue, found[1], load / total, len(cameras))


def _specs(cameras: Sequence[tuple[str, Sender]]) -> list[StreamSpec]:
    return [StreamSpec(s.spec.model, "1", s.spec.shape, s.spec.period_ns, s.spec.deadline_ns) for _, s in cameras]
