"""What the demo found, as one JSON document, and whether it is what it should be."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from gateway.client.types import CounterOffer
from gateway.demo.cameras import batches, faces_found
from gateway.demo.show import Refusal, Show

#: What the demo must show, or it fails.
MIN_MET = 0.99
MIN_FACES = 0.9
MAX_ERROR = 1e-3
#: So many frames, or half of them when a slow machine's cameras send few.
MIN_COMPARED = 50
#: A profiled time is about a 99th percentile: when more jobs than this take longer, the profile is not of this machine
#: as it is now.
MOST_OVER = 0.01


def summarise(show: Show, comparison: dict[str, Any], utilization: float, phases: dict[str, float]) -> dict[str, Any]:
    """Return the document; ``failures`` says what is not as it should be, and is empty when all is well."""
    stats = show.stats
    figures = stats.as_dict()
    document = {
        "streams_admitted": len(show.cameras),
        "streams_refused": 0 if show.refusal is None else 1,
        "refusal": None if show.refusal is None else describe_refusal(show.refusal),
        **{name: figures[name] for name in ("frames", "met", "missed", "expired", "cancelled", "failed")},
        "p50_latency_ms": figures["p50_latency_ms"],
        "p99_latency_ms": figures["p99_latency_ms"],
        "mean_batch": figures["mean_batch"],
        "jobs": show.jobs,
        "jobs_over_profile": show.jobs_over,
        "jobs_over_profile_share": round(show.jobs_over / max(1, show.jobs), 4),
        "advice": advice(show.jobs, show.jobs_over),
        "faces_found": round(faces_found(show.cameras, "carphone"), 4),
        "max_abs_error": comparison["max_abs_error"],
        "compared": comparison,
        "goodput_fps": round(stats.outcomes["met"] / max(1e-9, show.seconds), 2),
        "seconds": round(show.seconds, 2),
        "planned_utilization": round(utilization, 3),
        "jobs_by_batch": {str(size): jobs for size, jobs in batches(show.cameras).items()},
        "refused_frames": stats.refused,
        "lost": stats.lost,
        "skipped": stats.skipped,
        "per_stream": [_describe_camera(show, number) for number in range(len(show.cameras))],
        "setup_s": phases,
        "books": show.imbalances or "balanced",
    }
    return {**document, "failures": failures(document)}


def advice(jobs: int, over: int) -> list[str]:
    """Return what to do about jobs that took longer than their profiled time, at most 78 columns a line."""
    if over <= MOST_OVER * jobs:
        return []
    return [
        f"more than {MOST_OVER:.0%}: the machine is slower now than when it was profiled, and what",
        "admission promised rests on the profile: profile again, on a quiet machine",
    ]


def failures(document: dict[str, Any]) -> list[str]:
    """Return what is not as the demo promises, one line each."""
    found = [f"the books do not balance: {line}" for line in document["books"] if document["books"] != "balanced"]
    frames = max(1, document["frames"])
    if document["met"] / frames < MIN_MET:
        found.append(f"{document['met']} of {document['frames']} frames met their deadline, fewer than {MIN_MET:.0%}")
    if document["faces_found"] < MIN_FACES:
        found.append(f"a face was found in {document['faces_found']:.1%} of the carphone frames, below {MIN_FACES:.0%}")
    compared, least = document["compared"]["frames"], min(MIN_COMPARED, frames // 2)
    if compared < least:
        found.append(f"{compared} of {frames} frames were compared, fewer than {least}")
    if not document["max_abs_error"] <= MAX_ERROR:
        found.append(f"outputs differ by {document['max_abs_error']:.2e} from the independent run, over {MAX_ERROR:g}")
    if document["streams_refused"] < 1:
        found.append("no camera was refused with a first miss named")
    return found


def describe_refusal(refusal: Refusal) -> dict[str, Any]:
    """Return the refused camera, why, what would be admitted, and that an empty device would carry it."""
    plan, evidence = refusal.plan, refusal.problem.evidence
    return {
        "name": plan.name,
        "shape": list(plan.frame_shape),
        "fps": plan.fps,
        "deadline_ms": plan.deadline_ms,
        "code": refusal.problem.code,
        "detail": refusal.problem.detail,
        **{name: value for name, value in asdict(evidence).items() if name != "worst_latency_ms"},
        "counter_offers": [_describe_offer(offer) for offer in refusal.problem.counter_offers],
        "alone": {
            "admitted": refusal.alone.admitted,
            "utilization": refusal.alone.evidence.utilization,
            "worst_latency_ms": refusal.alone.evidence.worst_latency_ms,
        },
    }


def _describe_offer(offer: CounterOffer) -> dict[str, Any]:
    return {"field": offer.field, "value": list(offer.value) if isinstance(offer.value, tuple) else offer.value}


def _describe_camera(show: Show, number: int) -> dict[str, Any]:
    camera = show.cameras[number]
    plan = camera.plan
    return {
        "name": plan.name,
        "clip": plan.clip,
        "shape": list(plan.frame_shape),
        "fps": plan.fps,
        "deadline_ms": plan.deadline_ms,
        **camera.camera.stats.as_dict(),
        "frames_with_face": camera.frames_with_face,
        "best_face": round(camera.best_score, 3),
    }
