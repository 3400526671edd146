"""Outputs of ended frames are bounded in bytes, over all streams."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from gateway.core.types import Outcome
from gateway.runtime.kept import OUTPUTS_DROPPED, KeptOutputs
from gateway.runtime.results import FrameResult, ResultRing
from tests.runtime_support import admitted, frame, gateway_on_stand_in

ROW = np.zeros(1_000, np.uint8)


def result(stream_id: str, seq: int, row: np.ndarray | None = ROW) -> FrameResult:
    outputs = None if row is None else {"map": row}
    return FrameResult(stream_id, seq, Outcome.MET, "", 1.0, 2.0, 1, 0.5, 0.5, False, (8, 8, 3), outputs)


def test_many_streams_with_many_frames_stay_under_the_budget() -> None:
    outputs = KeptOutputs(100_000)
    rings = [ResultRing(256, outputs) for _ in range(200)]
    for seq in range(300):
        for stream, ring in enumerate(rings):
            ring.add(result(str(stream), seq))
            assert outputs.bytes <= 100_000
    shown = [found for ring in rings for found in ring.after(-1)]
    assert len(shown) == 200 * 256
    with_outputs = [found for found in shown if found.outputs is not None]
    assert {found.seq for found in with_outputs} == {299}, "the oldest go first, whose ever they are"
    assert 70 <= len(with_outputs) <= 100
    assert sum(found.outputs["map"].nbytes for found in with_outputs) <= 100_000


def test_a_result_without_its_outputs_says_so_and_is_otherwise_as_it_was() -> None:
    outputs = KeptOutputs(1_500)
    ring = ResultRing(4, outputs)
    old, new = result("a", 0), result("a", 1)
    ring.add(old)
    ring.add(new)
    assert ring.after(-1) == [replace(old, outputs=None, reason=OUTPUTS_DROPPED), new]


def test_what_never_had_outputs_keeps_its_reason() -> None:
    ring = ResultRing(4, KeptOutputs(0))
    expired = replace(result("a", 0, None), outcome=Outcome.EXPIRED, reason="expired")
    ring.add(expired)
    assert ring.after(-1) == [expired]


@pytest.mark.parametrize("how", ["overflow", "forget"])
def test_bytes_are_given_back_with_the_results(how: str) -> None:
    outputs = KeptOutputs(1 << 20)
    ring = ResultRing(3, outputs)
    for seq in (0, 2, 3, 1):  # 2 and 3 overtake 1
        ring.add(result("a", seq))
    three = outputs.bytes
    assert three >= 3 * ROW.nbytes
    if how == "overflow":
        for seq in range(4, 40):
            ring.add(result("a", seq))
        assert outputs.bytes == three
        for seq in range(40, 43):
            ring.add(result("a", seq, None))
    else:
        ring.forget()
    assert outputs.bytes == 0


def test_strings_and_many_tiny_arrays_are_counted_with_what_python_adds() -> None:
    outputs = KeptOutputs(1 << 20)
    outputs.put_away(result("a", 0, np.array([b"x" * 10_000], object)))
    assert outputs.bytes > 10_000
    before = outputs.bytes
    outputs.put_away(result("a", 1, np.zeros(1, np.uint8)))
    assert outputs.bytes > before + 100


def test_a_gateway_gives_up_outputs_but_not_outcomes() -> None:
    async def main() -> None:
        limits = {"results_kept_bytes": 3_000, "closed_streams_kept": 1}
        async with gateway_on_stand_in(limits=limits) as (gateway, _triton):
            records = [await admitted(gateway) for _ in range(4)]
            for value in range(20):
                for record in records:
                    [ticket] = gateway.submit(record.stream_id, frame(value))
                    answered = await ticket.result
                    assert answered.outputs is not None, "who waits gets everything"
                    assert 0 < gateway.kept_output_bytes <= 3_000
            for record in records:
                found = await gateway.results(record.stream_id, -1, 0)
                assert [entry.seq for entry in found] == list(range(20))
                assert {entry.outcome for entry in found} <= {Outcome.MET, Outcome.MISSED}
                assert [entry.reason for entry in found[:19]] == [OUTPUTS_DROPPED] * 19
            assert found[-1].outputs["stamp"][0] == 19
            for record in records:
                await gateway.close_stream(record.stream_id)
            assert gateway.kept_output_bytes > 0, "the last closed stream is remembered"
            await gateway.close_stream((await admitted(gateway)).stream_id)
            assert gateway.kept_output_bytes == 0

    asyncio.run(main())
