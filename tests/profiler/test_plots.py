"""Pictures of a profile: one for each model, whatever it is called."""

from pathlib import Path

import pytest

from gateway.core.profile import Profile, ProfileEntry
from profiler.plots import _figure, draw

pytest.importorskip("matplotlib")


def entry(model: str, batch: int, shape: tuple[int, ...] = (8, 8, 3), p50: float = 2.0) -> ProfileEntry:
    return ProfileEntry(model, "1", shape, "UINT8", batch, 200, p50, 1.5 * p50, 2 * p50)


def test_a_picture_for_each_model_with_a_line_for_each_shape(tmp_path: Path) -> None:
    entries = [entry("a/../b c", b, s, b * 2.0) for b in (1, 2, 16) for s in ((8, 8, 3), (16, 16, 3))] + [
        entry("one", 1)
    ]
    profile = Profile(entries=tuple(entries), device="a device", triton_version="2.51.0")
    files = draw(profile, tmp_path / "plots")
    assert [file.name for file in files] == ["a_.._b_c-1.png", "one-1.png"]
    assert sorted((tmp_path / "plots").iterdir()) == sorted(files)
    for file in files:
        assert file.read_bytes().startswith(b"\x89PNG")
        assert file.stat().st_size > 5_000


def test_axes_say_what_and_in_which_unit() -> None:
    entries = [entry("m", batch, p50=batch * 2.0) for batch in (1, 2, 4)]
    figure = _figure(Profile(device="a device", triton_version="2.51.0", engine="perf_analyzer"), "m/1", entries)
    times, rates = figure.axes
    assert times.get_ylabel() == "execution time of a batch (ms)"
    assert rates.get_ylabel() == "throughput (frames/s)"
    assert times.get_xlabel() == rates.get_xlabel() == "batch size (frames)"
    p50, p99 = times.get_lines()
    assert list(p50.get_xdata()) == [1, 2, 4]
    assert list(p50.get_ydata()) == [2.0, 4.0, 8.0]
    assert list(p99.get_ydata()) == [3.0, 6.0, 12.0]
    assert list(rates.get_lines()[0].get_ydata()) == [500.0] * 3
    assert [text.get_text() for text in times.get_legend().get_texts()] == ["8x8x3, p50", "8x8x3, p99"]
    assert "a device, Triton 2.51.0 (perf_analyzer)" in figure.get_suptitle()


def test_markers_keep_clear_of_the_frame_and_of_the_legend() -> None:
    entries = [entry("m", batch, shape, p50=batch * 2.0) for batch in (1, 2, 4) for shape in ((8, 8, 3), (9, 9, 3))]
    figure = _figure(Profile(), "m/1", entries)
    figure.canvas.draw()
    for axes in figure.axes:
        (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
        data = axes.dataLim
        assert left < data.x0 / 1.05
        assert right > data.x1 * 1.05
        assert bottom == 0
        assert top == pytest.approx(1.1 * data.y1)
        assert not axes.get_window_extent().overlaps(axes.get_legend().get_window_extent())
