"""What is said between the processes arrives as it was said, wherever the network cuts it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.types import Outcome
from gateway.ingest import wire
from gateway.runtime.results import FrameResult


@given(st.lists(st.binary(min_size=1, max_size=400), max_size=20), st.lists(st.integers(1, 300), min_size=1))
def test_messages_arrive_whole_wherever_they_are_cut(sent, cuts):
    data = b"".join(wire.message(each) for each in sent)
    messages, found, at, number = wire.Messages(), [], 0, 0
    while at < len(data):
        size = cuts[number % len(cuts)]
        number += 1
        found += [bytes(message) for message in messages.feed(data[at : at + size])]
        at += size
    assert found == sent


def test_a_message_over_the_limit_is_refused_before_it_is_here():
    messages = wire.Messages(limit_bytes=100)
    assert [bytes(each) for each in messages.feed(wire.message(bytes(96)))] == [bytes(96)]
    with pytest.raises(wire.TooLongError, match="101 bytes"):
        list(messages.feed(wire.message(bytes(97))[:4]))


def result(**fields):
    defaults = {
        "stream_id": "",
        "seq": 1 << 40,
        "outcome": Outcome.MET,
        "reason": "",
        "latency_ms": 1.5,
        "deadline_ms": 0.1 + 0.2,
        "batch": 3,
        "queue_ms": 1e-7,
        "execute_ms": 2.25,
        "degraded": False,
        "shape": (8, 8, 3),
        "outputs": None,
    }
    return FrameResult(**(defaults | fields))


def through(sent):
    data = b"".join(wire.result_parts(7, 2, sent))
    [message] = wire.Messages().feed(data)
    call, index, found = wire.read_result(message)
    assert (message[0], call, index) == (wire.RESULT, 7, 2)
    return found


@pytest.mark.parametrize("outcome", list(Outcome))
def test_every_outcome_arrives(outcome):
    sent = result(outcome=outcome, reason="ä\n", degraded=True, demoted=True, timestamp_ms=0.0, version="12")
    assert through(sent) == sent


def test_no_label_is_not_a_label_of_zero():
    assert through(result()).timestamp_ms is None


@pytest.mark.parametrize(
    "row",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.arange(12, dtype=np.int64).reshape(3, 4).T,  # not in row-major order
        np.array([], np.float16).reshape(0, 4),
        np.array(2.5),
        np.array([True, False]),
        np.array([np.nan, -np.inf, -0.0], np.float64),
        np.array([b"", b"\xff\x00", "ä".encode()], object),
    ],
    ids=str,
)
def test_outputs_arrive_bit_exact(row):
    found = through(result(outputs={"before": np.array([1], np.uint8), "row": row})).outputs
    assert list(found) == ["before", "row"]
    assert (found["row"].dtype, found["row"].shape) == (row.dtype, row.shape)
    assert found["row"].tobytes() == row.tobytes() or found["row"].tolist() == row.tolist()
    assert found["row"].flags.aligned


def test_no_outputs_are_not_none():
    assert through(result(outputs={})).outputs == {}
