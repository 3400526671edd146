"""Buckets show what a histogram of prometheus_client would."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram, disable_created_metrics, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from gateway.core.types import NS_PER_S
from gateway.telemetry.buckets import Buckets, BucketsCollector
from gateway.telemetry.metrics import BATCHES, RATIOS, SECONDS


def text_of(values, bounds, unit):
    registry, series = CollectorRegistry(), {}
    registry.register(BucketsCollector("h", "What it is", series, "model"))
    for model, value in values:
        series.setdefault(model, Buckets(bounds, unit)).add(value)
    return generate_latest(registry).decode()


def text_of_theirs(values, bounds, unit):
    disable_created_metrics()
    registry = CollectorRegistry()
    theirs = Histogram("h", "What it is", ["model"], buckets=bounds, registry=registry)
    for model, value in values:
        theirs.labels(model).observe(value / unit)
    return generate_latest(registry).decode()


def read(text):
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def near(bounds, unit):
    """Values around the bounds, where a mistake would show."""
    exact = [round(bound * unit) for bound in bounds]
    return st.one_of(st.integers(0, 2 * exact[-1]), st.sampled_from([b + d for b in exact for d in (-1, 0, 1)]))


durations = st.lists(st.tuples(st.sampled_from("ab"), near(SECONDS, NS_PER_S)), max_size=30)


@given(durations)
def test_durations_are_shown_as_theirs(values):
    ours, theirs = (read(show(values, SECONDS, NS_PER_S)) for show in (text_of, text_of_theirs))
    assert list(ours) == list(theirs)
    assert ours == pytest.approx(theirs)
    assert {key: n for key, n in ours.items() if key[0] != "h_sum"} == {
        key: n for key, n in theirs.items() if key[0] != "h_sum"
    }


@given(st.lists(st.tuples(st.sampled_from("ab"), st.one_of(st.floats(0, 9), st.sampled_from(RATIOS))), max_size=30))
def test_ratios_are_shown_as_theirs_to_the_letter(values):
    assert text_of(values, RATIOS, 1) == text_of_theirs(values, RATIOS, 1)


@given(st.lists(st.tuples(st.just("a"), st.integers(1, 80)), max_size=30))
def test_numbers_of_frames_are_shown_as_theirs_to_the_letter(values):
    assert text_of(values, BATCHES, 1) == text_of_theirs(values, BATCHES, 1)


def test_one_series_needs_no_label():
    registry, alone = CollectorRegistry(), Buckets((1, 2))
    registry.register(BucketsCollector("h", "What it is", {"": alone}))
    alone.add(2)
    assert read(generate_latest(registry).decode())["h_bucket", ("le", "2.0")] == 1
    assert (alone.count, alone.sum) == (1, 2)
