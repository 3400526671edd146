"""The quick profile on the stand-in: what is measured, what is left out, and the command."""

import asyncio
import io
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from gateway.cli import app
from gateway.core.profile import ModelEntry, Profile, ProfileEntry
from gateway.core.types import Category
from gateway.errors import FramegateError, TritonUnavailable
from gateway.runtime.profile_file import read_profile
from gateway.triton.types import TensorInfo
from profiler import command as command_module
from profiler.command import parse_shape
from profiler.interference_command import interference
from profiler.plan import Plan, Report, fill, noise_frame
from profiler.quick import measure
from profiler.show import table
from tests.runtime_support import make_settings, shm_files
from tests.stand_in import Model, StandIn


def profile_on_stand_in(
    plan: Plan, *models: Model, script: Callable[[StandIn], None] = lambda _: None, **groups: Any
) -> tuple[Report, StandIn]:
    async def main() -> tuple[Report, StandIn]:
        async with StandIn(*models) as triton:
            script(triton)
            return await measure(plan, make_settings(triton.url, **groups), "a test"), triton

    before = shm_files()
    answer = asyncio.run(main())
    assert shm_files() == before
    return answer


def test_every_point_is_measured_through_the_dispatch_path_after_warm_up() -> None:
    def warm_up_is_slow(triton: StandIn) -> None:
        triton.delay_s = lambda call: (
            0.05 if len([c for c in triton.log("infer") if c.shape == call.shape]) <= 5 else 0.002
        )

    plan = Plan(("echo",), ((8, 8), (4, 6)), (1, 3), samples=10)
    report, triton = profile_on_stand_in(plan, Model("echo", loaded=False), script=warm_up_is_slow)
    assert report.failures == ()
    entries = {(entry.shape, entry.batch): entry for entry in report.profile.entries}
    assert set(entries) == {((8, 8, 3), 1), ((8, 8, 3), 3), ((4, 6, 3), 1), ((4, 6, 3), 3)}
    for entry in entries.values():
        assert entry.count == 10
        assert entry.p50_ms >= 2
        assert entry.p50_ms < 50, "warm-up was counted"
        assert not entry.stable
    assert {call.way for call in triton.log("infer")} == {"shm"}
    assert len(triton.log("infer")) == 4 * 15
    assert (report.profile.device, report.profile.triton_version) == ("a test", "2.51.0")
    assert report.profile.models == ()
    assert report.profile.max_batch(Category("echo", "1", (8, 8, 3))) == 3


def test_points_that_fail_are_named_and_the_others_kept() -> None:
    def script(triton: StandIn) -> None:
        triton.error = lambda call: "no kernel for 2 rows" if call.name == "echo" and call.rows == 2 else ""

    models = (Model("echo", max_batch_size=4), Model("broken", loaded=False, load_error="truncated file"))
    plan = Plan(("echo", "broken", "nobody"), ((8, 8), (8, 8, 4)), (1, 2, 8), samples=3)
    report, _ = profile_on_stand_in(plan, *models, script=script)
    assert [(e.model, e.shape, e.batch) for e in report.profile.entries] == [("echo", (8, 8, 3), 1)]
    reasons = {(f.model, f.shape, f.batch): f.reason for f in report.failures}
    assert "no kernel for 2 rows" in reasons["echo", (8, 8, 3), 2]
    assert "at most 4 frames" in reasons["echo", (8, 8, 3), 8]
    assert "takes frames of shape" in reasons["echo", (8, 8, 4), 1]
    assert "truncated file" in reasons["broken", (), 0]
    assert reasons["nobody", (), 0] == "Triton's repository has no such model; it has broken, echo."


def test_a_batch_that_cannot_be_carried_is_a_failed_point() -> None:
    plan = Plan(("echo",), ((512, 512),), (1, 2), samples=2)
    report, _ = profile_on_stand_in(plan, arena={"bytes": 1 << 20})
    assert [entry.batch for entry in report.profile.entries] == [1]
    assert "FRAMEGATE_ARENA__BYTES" in report.failures[0].reason


def test_messages_of_24_mib_are_measured_too() -> None:
    """Field report 45: the measuring tool must not stop at gRPC's 4 MB."""
    plan = Plan(("echo",), ((2048, 4096),), (1,), samples=1)
    groups = {"triton": {"shared_memory": "off"}, "arena": {"bytes": 32 << 20}}
    report, triton = profile_on_stand_in(plan, Model("echo", outputs=("stamp",)), **groups)
    assert report.failures == ()
    assert {call.way for call in triton.log("infer")} == {"message"}


def test_a_triton_that_goes_away_fails_the_point_instead_of_hanging() -> None:
    async def main() -> Report:
        async with StandIn() as triton:
            triton.delay_s = lambda call: 0.05 if call.rows == 1 else 60.0
            task = asyncio.create_task(
                measure(Plan(("echo",), ((8, 8),), (1, 2), samples=2), make_settings(triton.url), "")
            )
            while not any(call.rows == 2 for call in triton.log("infer")):
                await asyncio.sleep(0.01)
            await triton.stop()
            return await task

    report = asyncio.run(main())
    assert [entry.batch for entry in report.profile.entries] == [1]
    assert report.failures[0].batch == 2


def test_no_triton_is_said_in_time() -> None:
    plan = Plan(("echo",), (), (1,), connect_limit_s=0.3)
    with pytest.raises(TritonUnavailable, match=r"did not come up at 127.0.0.1:9 within 0.3 s: .*--embedded"):
        asyncio.run(measure(plan, make_settings("127.0.0.1:9"), ""))


@pytest.mark.parametrize(
    ("axes", "sizes", "expected"),
    [
        ((-1, -1, 3), (8, 6), (8, 6, 3)),
        ((3, -1, -1), (8, 6), (3, 8, 6)),
        ((-1, -1, 3), (8, 6, 3), (8, 6, 3)),
        ((-1,), (5,), (5,)),
    ],
)
def test_sizes_fill_the_free_axes(axes: tuple[int, ...], sizes: tuple[int, ...], expected: tuple[int, ...]) -> None:
    assert fill(TensorInfo("x", "UINT8", axes), sizes) == expected


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(FramegateError, match="2 sizes do not fill"):
        fill(TensorInfo("x", "UINT8", (-1, 8, 3)), (8, 6))


@pytest.mark.parametrize("dtype", ["UINT8", "BOOL", "FP16", "BF16", "FP32", "FP64", "INT64"])
def test_noise_is_the_same_every_time_and_of_the_right_size(dtype: str) -> None:
    size = {"UINT8": 1, "BOOL": 1, "FP16": 2, "BF16": 2, "FP32": 4, "FP64": 8, "INT64": 8}[dtype]
    made = noise_frame((4, 6, 3), dtype)
    assert len(made) == 72 * size
    assert made == noise_frame((4, 6, 3), dtype)
    if dtype in {"FP32", "FP64"}:
        assert np.isfinite(np.frombuffer(made, {"FP32": np.float32, "FP64": np.float64}[dtype])).all()


# ---------------------------------------------------------------- the command


@contextmanager
def stand_in_thread(*models: Model) -> Iterator[StandIn]:
    """A stand-in on a loop of its own: the command runs one itself."""
    triton, loop = StandIn(*models), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(triton.start(), loop).result(10)
    try:
        yield triton
    finally:
        asyncio.run_coroutine_threadsafe(triton.stop(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_models_that_do_not_load_in_time_are_told_from_no_triton() -> None:
    plan = Plan(("echo",), ((8, 8),), (1,), load_limit_s=0.3)
    seen: list[str] = []

    async def main() -> None:
        async with StandIn(Model("echo", loaded=False, load_delay_s=60.0)) as triton:
            await measure(plan, make_settings(triton.url), "", lambda what, _: seen.append(what))

    with pytest.raises(TritonUnavailable, match=r"did not load the models within 0.3 s"):
        asyncio.run(main())
    assert seen[0].startswith("waiting for Triton at 127.0.0.1:")
    assert seen[1] == "loading echo"


def command(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["profile", "--quick", "--samples", "3", "--arena-mb", "1", *arguments])


@pytest.mark.parametrize(
    ("flags", "samples"),
    [
        (["--engine", "native"], 200),
        (["--back-to-back"], 200),
        (["--quick"], 50),
        (["--quick", "--samples", "7"], 7),
    ],
)
def test_quick_takes_fewer_samples(tmp_path: Path, flags: list[str], samples: int) -> None:
    out = tmp_path / "box.json"
    with stand_in_thread() as triton:
        arguments = ["--model", "echo", "--shape", "8x8", "--batch", "1", "--arena-mb", "1", "--triton", triton.url]
        result = CliRunner().invoke(app, ["profile", *flags, *arguments, "--out", str(out)])
    assert result.exit_code == 0, result.output
    [entry] = read_profile(out).entries
    assert (entry.count, entry.p99_ms is not None) == (samples, True)
    assert f"waiting for Triton at {triton.url}" in result.stderr


def test_where_nothing_can_be_written_is_said_before_anything_is_measured(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for out, said in ((tmp_path, "is a directory"), (tmp_path / "file" / "box.json", "file")):
        result = command("--model", "m", "--triton", "127.0.0.1:9", "--out", str(out))
        assert result.exit_code == 2
        assert said in result.stderr
        assert "waiting" not in result.stderr


def test_nothing_measured_is_no_table_and_the_next_step_is_named(tmp_path: Path) -> None:
    with stand_in_thread() as triton:
        arguments = ("--model", "echo", "--model", "resnet152", "--batch", "1", "--model-repository", str(tmp_path))
        result = command(*arguments, "--triton", triton.url, "--out", str(tmp_path / "box.json"))
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "give --shape HxW" in result.stderr
    assert "run framegate zoo build resnet152" in result.stderr
    assert "zoo build echo" not in result.stderr


def test_the_table_fits_80_columns_uncut() -> None:
    names = ("inception_v3", "centerface")
    entries = tuple(
        ProfileEntry(name, "1", (1080, 1920, 3), "UINT8", batch, 1000, 1234.567, 2345.678, 3456.789, True)
        for name in names
        for batch in (1, 16)
    )
    console = Console(width=80, file=io.StringIO())
    console.print(table(Report(Profile(entries=entries, device="a device", triton_version="2.51.0"), ())))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    for shown in ("inception_v3/1", "1080x1920x3", "1234.57", "2345.68", "planned", "a frame"):
        assert shown in text
    assert len(text.splitlines()) == 2 + len(entries), "a row was broken"


def shown(*entries: tuple[int, float, float], count: int = 200, stable: bool = True, models: Any = ()) -> str:
    """Return the table of one model's (batch, p50, p99) as it is printed."""
    console = Console(width=80, file=io.StringIO())
    made = tuple(ProfileEntry("m", "1", (8, 8, 3), "UINT8", n, count, a, b, b, stable) for n, a, b in entries)
    console.print(table(Report(Profile(entries=made, models=models), ())))
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def marks(text: str) -> list[str]:
    rows = [line.split() for line in text.splitlines() if line.startswith("m/1")]
    return [row[8] if len(row) > 8 else "" for row in rows]


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([(1, 2.0, 2.5), (2, 4.0, 5.0)], ["", ""]),
        ([(1, 2.0, 6.0), (2, 3.9, 12.0)], ["", "~"]),
        ([(1, 3.0, 7.0), (2, 4.0, 5.0), (4, 5.0, 6.0)], ["~", "", ""]),
        ([(1, 2.0, 5.2), (2, 4.0, 5.0)], ["", ""]),
        ([(1, 10.0, 10.0), (2, 15.0, 15.0), (4, 46.0, 46.0)], ["", "", "^"]),
        ([(1, 10.0, 10.0), (2, 15.0, 15.0), (4, 44.0, 44.0)], ["", "", ""]),
        ([(1, 10.0, 10.0), (2, 15.0, 46.0)], ["", "~^"]),
    ],
    ids=["fine", "long tail", "falls", "hardly falls", "does not pay", "just pays", "both"],
)
def test_points_that_cost_cameras_are_marked(entries: list[tuple[int, float, float]], expected: list[str]) -> None:
    text = shown(*entries)
    assert marks(text) == expected
    assert ("measure again on a quiet machine" in text) == ("~" in "".join(expected))
    assert ("over 1.5 times as long" in text) == ("^" in "".join(expected))
    assert max(map(len, text.splitlines())) <= 80


def test_what_did_not_settle_or_is_thin_is_marked() -> None:
    assert marks(shown((1, 2.0, 2.5), stable=False)) == ["~"]
    thin = shown((1, 2.0, 2.5), (2, 4.0, 13.0), count=50, stable=False)
    assert marks(thin) == ["<", "<~^"]
    assert "< under 100 samples" in thin


def test_swap_times_have_only_columns_that_were_measured() -> None:
    alone = shown((1, 2.0, 2.5), models=(ModelEntry("m", "1", 900.0, 80.0, 1 << 20),))
    assert "beside" not in alone
    assert "ms (median and longest), and MiB of memory" in alone
    assert alone.splitlines()[-1].split() == ["m/1", "900", "-", "80", "-", "-", "1"], (
        "from before the longest was kept"
    )
    measured = ModelEntry("inception_v3", "1", 900.0, 80.0, 1 << 20, 1.5, 2.5, 5, 12_345.0, 1_234.0, 2_345.0)
    both = shown((1, 2.0, 2.5), models=(measured, ModelEntry("x", "1", 9.0, 8.0, 1 << 20)))
    row, bare = ([line.split() for line in both.splitlines() if line.startswith(name)][-1] for name in ("inc", "x/1"))
    assert row == ["inception_v3/1", "900", "12345", "80", "1234", "2345", "1", "x", "1.50", "x", "2.50"]
    assert bare[-2:] == ["-", "-"]
    assert "in multiples of alone" in both
    assert max(map(len, both.splitlines())) <= 80


@pytest.mark.parametrize(("flags", "file"), [((), "profile.json"), (("--quick",), "quick.json")])
def test_without_out_a_full_profile_is_not_called_quick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], file: str
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ("--model", "echo", "--shape", "8x8", "--batch", "1", "--samples", "2", "--arena-mb", "1")
    with stand_in_thread() as triton:
        engine = () if flags else ("--engine", "native")
        result = CliRunner().invoke(app, ["profile", *arguments, *flags, *engine, "--triton", triton.url])
    assert result.exit_code == 0, result.output
    assert [path.name for path in (tmp_path / "profiles").iterdir()] == [file]


def test_paragraphs_of_the_help_are_not_broken() -> None:
    """Only the first is reflowed: a line end within another is one on the screen."""
    for command in (command_module.profile, interference):
        _, *rest = (command.__doc__ or "").strip().split("\n\n")
        assert rest
        assert [paragraph for paragraph in rest if "\n" in paragraph.strip()] == []


def test_the_command_writes_a_file_and_shows_a_table(tmp_path: Path) -> None:
    out = tmp_path / "profiles" / "box.json"
    with stand_in_thread() as triton:
        arguments = ("--model", "echo", "--shape", "8x8", "--batch", "1", "--batch", "2")
        result = command(*arguments, "--triton", triton.url, "--out", str(out))
    assert result.exit_code == 0, result.output
    assert "8x8x3" in result.output
    assert f"written to {out}" in result.output.replace("\n", "")
    assert [entry.batch for entry in read_profile(out).entries] == [1, 2]


def test_the_command_says_what_failed_with_its_status(tmp_path: Path) -> None:
    out = tmp_path / "box.json"
    with stand_in_thread() as triton:
        arguments = ("--model", "echo", "--model", "nobody", "--shape", "8x8", "--batch", "1", "--json")
        result = command(*arguments, "--triton", triton.url, "--out", str(out))
    assert result.exit_code == 1, result.output
    report = json.loads(result.stdout)
    assert report["file"] == str(out)
    assert [entry["model"] for entry in report["profile"]["entries"]] == ["echo"]
    assert report["failed"][0]["model"] == "nobody"
    assert "not measured: nobody: Triton's repository has no such model; it has echo. framegate zoo list" in (
        result.stderr
    )
    assert "failed to poll" not in result.stderr, "Triton's own words"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "m", "--shape", "tall"], "a shape is written like 480x640"),
        (["--model", "m", "--shape", "0x8"], "a shape is written like 480x640"),
        (["--model", "m", "--triton", "127.0.0.1:9", "--embedded"], "exclude each other"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_runs(arguments: list[str], message: str) -> None:
    result = command(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_shapes_are_height_by_width() -> None:
    assert parse_shape("480X640") == (480, 640)
    assert parse_shape("3x480x640") == (3, 480, 640)
