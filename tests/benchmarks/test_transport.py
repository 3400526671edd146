"""What the benchmark of the ways to Triton makes of its figures, and that all ways work on a real one."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

from benchmarks.transport import MODELS, Figures, Ways, _rows, table, write_models
from gateway.triton.embedded import EmbeddedTriton


def test_ratios_are_those_of_one_round() -> None:
    found = {
        "grpc.aio": [Figures(200, 400), Figures(400, 800), Figures(100, 500)],
        "http": [Figures(100, 300), Figures(100, 900), Figures(40, 500)],
    }
    rows = _rows("numbers", 8, found)
    assert [row["cpu_us"] for row in rows] == [200, 100]
    assert [row["cpu_ratio"] for row in rows] == [1.0, 0.4]
    assert [row["p50_us"] for row in rows] == [500, 500]
    assert table(rows).splitlines()[-1] == "| numbers | 8 | http | 100 | 0.4 | 500 |"


@pytest.mark.e2e
def test_all_ways_give_the_same(tmp_path: Path) -> None:
    async def main(triton: EmbeddedTriton) -> None:
        ways = Ways(triton)
        await ways.open()
        try:
            for name in MODELS:
                model = await ways.metadata(name)
                first, *others = [await ways.call(way, model, 2) for way in ways.names]
                assert first["value"].shape == (2, MODELS[name])
                for outputs in others:
                    np.testing.assert_array_equal(outputs["value"], first["value"])
        finally:
            await ways.close()

    with EmbeddedTriton(write_models(tmp_path / "models"), tmp_path / "triton.log", models=list(MODELS)) as triton:
        asyncio.run(main(triton))
