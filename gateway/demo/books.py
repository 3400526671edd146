"""Do the books balance? Every frame that was sent has one outcome, and the gateway's own counters agree."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from gateway.client.stats import OUTCOMES, Stats

#: One sample of Prometheus' text format: name, labels, value.
_SAMPLE = re.compile(r"^(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def parse_metrics(text: str) -> Samples:
    """Return the samples of Prometheus' text format by name and labels."""
    samples: Samples = {}
    for line in text.splitlines():
        if (match := _SAMPLE.match(line)) is not None:
            samples[match["name"], frozenset(_LABEL.findall(match["labels"] or ""))] = float(match["value"])
    return samples


def outcomes_of(samples: Samples, model: str) -> Counter[str]:
    """Return how many frames of `model` ended in each outcome; ``accepted`` is among the keys."""
    counts: Counter[str] = Counter()
    for outcome in OUTCOMES:
        labels = frozenset({("model", model), ("outcome", outcome)})
        counts[outcome] = int(samples.get(("framegate_frames_total", labels), 0))
    counts["accepted"] = int(samples.get(("framegate_frames_accepted_total", frozenset({("model", model)})), 0))
    return counts


def jobs_of(samples: Samples, model: str) -> tuple[int, int]:
    """Return how many jobs of `model` ran, and how many of them took longer than their profiled time."""
    label = frozenset({("model", model)})
    names = ("framegate_job_execute_seconds_count", "framegate_jobs_overrun_total")
    jobs, over = (int(samples.get((name, label), 0)) for name in names)
    return jobs, over


def imbalances(stats: Stats, before: Mapping[str, int], after: Mapping[str, int]) -> list[str]:
    """Return what does not add up, one line each.

    Args:
        stats: What the cameras saw.
        before: The gateway's counts before the cameras started, as of `outcomes_of`.
        after: Its counts when every frame was answered.
    """
    found = []
    if stats.lost:
        found.append(f"{stats.lost} frames were sent and got no answer")
    if stats.refused:
        found.append(f"{stats.refused} frames were sent and not accepted")
    if stats.sent != stats.answered + stats.lost + stats.refused:
        found.append(f"{stats.sent} frames were sent, {stats.answered} have an outcome")
    gateway = {name: after[name] - before[name] for name in (*OUTCOMES, "accepted")}
    if gateway["accepted"] != stats.answered:
        found.append(f"the gateway accepted {gateway['accepted']} frames, the cameras have {stats.answered} outcomes")
    differ = [outcome for outcome in OUTCOMES if gateway[outcome] != stats.outcomes[outcome]]
    return found + [
        f"{name}: the gateway counts {gateway[name]}, the cameras {stats.outcomes[name]}" for name in differ
    ]
