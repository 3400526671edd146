import pytest

from benchmarks.paper_profiles import DEVICES, FOLDER, NETWORKS, RTX2080, TX2, execution_ms, profile, variant
from gateway.core.types import Category
from gateway.runtime.profile_file import read_profile


@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.name)
class TestEachDevice:
    def test_the_committed_file_is_what_the_formulas_give(self, device):
        assert read_profile(FOLDER / f"{device.name}.json") == profile(device)

    def test_it_says_that_nothing_was_measured(self, device):
        found = profile(device)
        assert found.engine == "synthetic"
        assert "nothing was measured" in found.device

    def test_every_model_gains_from_batches_and_pays_for_pixels(self, device):
        small, large = (height * width for height, width, _ in (device.shapes[-1], device.shapes[0]))
        for model in NETWORKS:
            one, four = (execution_ms(device, model, n, small) for n in (1, 4))
            assert one < four < 4 * one
            assert execution_ms(device, model, 1, large) > one

    def test_every_model_has_every_shape(self, device):
        found = profile(device)
        for model in NETWORKS:
            assert found.shapes(model, "1") == sorted(device.shapes)
            assert found.max_batch(Category(model, "1", device.shapes[-1])) >= 16


def test_the_small_device_is_slower():
    assert all(execution_ms(TX2, model, 1, 50_176) > 4 * execution_ms(RTX2080, model, 1, 50_176) for model in NETWORKS)


def test_a_variant_scales_every_time():
    base = profile(RTX2080)
    slower = variant(base, 1.3)
    assert [e.p99_ms / b.p99_ms for e, b in zip(slower.entries, base.entries, strict=True)] == pytest.approx(
        [1.3] * len(base.entries)
    )
    assert slower.models == base.models
    assert "x 1.3" in slower.device
