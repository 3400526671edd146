"""Models in the SDK, and `framegate models`."""

import asyncio
import json
import threading
from contextlib import contextmanager

import httpx
import pytest
import uvicorn
from rich.console import Console
from stub_gateway import MEMORY, StubGateway, model_entry, problem
from typer.testing import CliRunner

from gateway.cli import app
from gateway.client.client import FramegateClient
from gateway.client.models import Models
from gateway.client.models_show import in_time, memory_line, show
from gateway.client.problems import ProblemError
from gateway.sizes import in_bytes, parse_bytes

NO_ROOM = {"unit": "models", "needed": 1, "budget": 1, "free": 0, "held": {"face": 1}, "lost": 0}


def talk(stub, conversation):
    async def main():
        async with FramegateClient("http://stub", transport=httpx.ASGITransport(stub.app())) as client:
            return await conversation(client)

    return asyncio.run(main())


# ---------------------------------------------------------------- the SDK


def test_models_and_memory_are_values():
    stub = StubGateway()
    stub.model_entries["face"] = model_entry(
        "face", state="failed", reason="no file", pins=["stream", "command"], retry_in_ms=1500.0, held_bytes=0
    )
    listed = talk(stub, lambda client: client.models())
    centerface, face = listed.models
    assert (centerface.state, centerface.versions, centerface.size_bytes) == ("resident", ("1",), 64 << 20)
    assert (centerface.last_used_ago_ms, centerface.next_use_in_ms, centerface.retry_in_ms) == (None, None, None)
    assert (face.state, face.reason, face.pins, face.retry_in_ms) == ("failed", "no file", ("stream", "command"), 1500)
    assert (listed.memory.unit, listed.memory.budget, listed.memory.free) == ("bytes", 96 << 20, 32 << 20)
    assert face.raw["versions"][0]["profiled_shapes"] == [[4, 6, 3]]


def test_commands_answer_the_model_as_it_stands_then():
    stub = StubGateway()

    async def conversation(client):
        yield await client.unload_model("centerface", force=True)
        yield await client.load_model("centerface")
        yield await client.pin_model("centerface")
        yield await client.pin_model("centerface", pinned=False)

    async def gathered(client):
        return [answer async for answer in conversation(client)]

    gone, back, pinned, free = talk(stub, gathered)
    assert (gone.state, gone.barred, back.state, back.barred) == ("absent", True, "resident", False)
    assert (pinned.pins, free.pins) == (("command",), ())
    assert stub.calls == [
        ("unload", "centerface", {"force": True}),
        ("load", "centerface", {}),
        ("pin", "centerface", {"pinned": True}),
        ("pin", "centerface", {"pinned": False}),
    ]


def test_a_refused_command_is_a_problem_with_its_evidence():
    stub = StubGateway(model_problem=problem(409, "no_room_for_model", "it does not fit", memory=NO_ROOM))
    with pytest.raises(ProblemError, match="it does not fit") as caught:
        talk(stub, lambda client: client.load_model("centerface"))
    assert (caught.value.code, caught.value.document["memory"]["held"]) == ("no_room_for_model", {"face": 1})


def test_odd_names_stay_in_their_place_in_the_path():
    stub = StubGateway()
    with pytest.raises(ProblemError, match="404"):
        talk(stub, lambda client: client.load_model("a/../b"))
    assert stub.calls == [], "it is another path, and no command"


# ---------------------------------------------------------------- framegate models


@contextmanager
def serving(stub):
    """The stub at a real address, as the command makes its own client."""
    server = uvicorn.Server(uvicorn.Config(stub.app(), port=0, log_config=None, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)


@pytest.fixture(scope="module")
def served():
    stub = StubGateway()
    with serving(stub) as url:
        yield stub, url


@pytest.fixture
def stub(served):
    stub, _url = served
    yield stub
    stub.calls.clear()
    stub.model_problem = None
    stub.model_entries = {"centerface": model_entry("centerface")}


def run(served, *words):
    return CliRunner().invoke(app, ["models", *words, "--url", served[1]])


@pytest.mark.parametrize("words", [(), ("list",)])
def test_it_lists_them(served, stub, words):
    stub.model_entries["face"] = model_entry(
        "face", state="absent", versions=[], held_bytes=0, last_used_ago_ms=65_000.0
    )
    result = run(served, *words)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["model", "state", "size", "last", "used", "next", "use", "waiting", "stays", "for"]
    assert lines[1].split() == ["centerface/1", "resident", "64.0", "MiB", "-", "-", "0", "-"]
    assert lines[2].split() == ["face", "absent", "64.0", "MiB", "1", "min", "ago", "-", "0", "-"]
    assert lines[3] == "memory: 64.0 MiB of 96.0 MiB held, 32.0 MiB free"


def test_json_is_the_answer_itself(served, stub):
    result = run(served, "list", "--json")
    assert json.loads(result.stdout) == {"models": list(stub.model_entries.values()), "memory": MEMORY}
    assert json.loads(run(served, "load", "centerface", "--json").stdout)["state"] == "resident"


@pytest.mark.parametrize(
    ("words", "call"),
    [
        (("load", "centerface"), ("load", "centerface", {})),
        (("unload", "centerface"), ("unload", "centerface", {"force": False})),
        (("unload", "centerface", "--force"), ("unload", "centerface", {"force": True})),
        (("pin", "centerface"), ("pin", "centerface", {"pinned": True})),
        (("unpin", "centerface"), ("pin", "centerface", {"pinned": False})),
    ],
)
def test_commands(served, stub, words, call):
    result = run(served, *words)
    assert result.exit_code == 0, result.output
    assert stub.calls == [call]
    assert "centerface" in result.stdout


def test_what_is_kept_out_says_how_it_comes_back(served, stub):
    said = run(served, "unload", "centerface").stdout
    assert "centerface: unloaded by command: `framegate models load centerface` brings it back" in said


def test_a_refusal_is_one_line_and_the_exit_status(served, stub):
    stub.model_problem = problem(409, "model_pinned", "centerface has to stay", pins=["stream"])
    result = run(served, "unload", "centerface")
    said = "centerface has to stay: real-time streams need it. --force unloads it all the same, and its frames fail"
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", f"error: {said}\n")
    result = run(served, "unload", "centerface", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["pins"] == ["stream"]


@pytest.mark.parametrize(
    ("code", "members", "said"),
    [
        ("unknown_model", {}, "`framegate models list --all` shows what there is"),
        ("model_pinned", {"pins": ["command"]}, "it is pinned. `framegate models unpin centerface`, or --force"),
        ("no_room_for_model", {"memory": NO_ROOM}, "needs 1 model of the budget of 1 model; what has to stay leaves 0"),
        ("no_room_for_model", {"memory": NO_ROOM}, "`framegate models unpin` what is pinned"),
        ("no_room_for_model", {"memory": NO_ROOM | {"needed": 2}}, "serve with a larger one (--memory-budget"),
        ("no_room_for_model", {}, "GET this"),
        ("model_not_loaded", {}, "GET this: `framegate models load centerface`"),
    ],
)
def test_refusals_name_the_next_command(served, stub, code, members, said):
    stub.model_problem = problem(409, code, "GET this\n.", **members)
    result = run(served, "load", "centerface")
    assert result.exit_code == 1
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_models_that_nobody_uses_are_counted_only(served, stub):
    stub.model_entries["vgg16"] = model_entry("vgg16", state="absent", versions=[], size_bytes=None, held_bytes=0)
    listed = run(served).stdout
    assert "vgg16" not in listed
    assert "and 1 that is not profiled and not loaded (--all)" in listed
    for words in (("--all",), ("list", "--all")):
        assert "vgg16" in run(served, *words).stdout


def test_a_gateway_that_is_not_there():
    result = CliRunner().invoke(app, ["models", "--url", "http://127.0.0.1:1"])
    assert result.exit_code == 1
    assert result.stderr.startswith("error: GET http://127.0.0.1:1/v1/models")
    assert "is `framegate serve` running at http://127.0.0.1:1? --url says" in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize("words", [["models", "--url", "127.0.0.1:8000"], ["models", "--json", "load", "x"]])
def test_options_that_cannot_be(words):
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2


# ---------------------------------------------------------------- what people see


def shown(document):
    console = Console(width=80, highlight=False)
    with console.capture() as capture:
        show(Models.from_json(document), console)
    return capture.get()


def test_a_usual_list_fits_80_columns():
    models = [
        model_entry("mobilenet_v2", pins=["stream"], last_used_ago_ms=12.0, next_use_in_ms=88.0),
        model_entry("centerface", state="unloading", pins=["command"], frames_waiting=12, next_use_in_ms=0.0),
        model_entry(
            "resnet152", pins=["stream"], swap_region=True, last_used_ago_ms=3_000_000.0, next_use_in_ms=12_300.0
        ),
    ]
    lines = shown({"models": models, "memory": MEMORY}).splitlines()
    assert all(len(line.rstrip()) <= 80 for line in lines)
    assert len(lines) == 5, "no cell is wrapped"
    assert lines[1].split()[4:] == ["12", "ms", "ago", "in", "88", "ms", "0", "streams"]
    assert "now" in lines[2]
    assert lines[3].split()[4:] == ["50", "min", "ago", "in", "12.3", "s", "0", "turns"]


def test_reasons_stand_below_the_table_as_they_are():
    """Triton's words may look like markup."""
    model = model_entry("face", state="failed", reason="load failed: [model.onnx] is no file", retry_in_ms=4_000.0)
    text = shown({"models": [model], "memory": MEMORY})
    assert "face: load failed: [model.onnx] is no file; it may be tried again in 4.0 s\n" in text


def test_a_traceback_is_its_last_line():
    trace = (
        'Traceback (most recent call last):\n  File "m.py", line 3, in load\n    raise\nfoo.NoSuchFile: [x] is gone\n;'
    )
    model = model_entry("face", state="failed", reason=f"load failed: Internal: {trace}", retry_in_ms=0.0)
    text = shown({"models": [model], "memory": MEMORY})
    assert "face: load failed: Internal: foo.NoSuchFile: [x] is gone; it may be tried again now\n" in text
    model["reason"] = "word " * 200
    [line] = [line for line in shown({"models": [model], "memory": MEMORY}).splitlines() if line.startswith("face: ")]
    assert "... (--json has all of it)" in line
    assert len(line) < 400


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"swap_region": True, "pins": ["stream", "command"]}, "is pinned once they have gone"),
        ({"state": "loading", "pins": ["command"]}, "`framegate models` shows what became of it"),
    ],
)
def test_a_pin_that_is_not_in_force_yet_says_so(fields, said):
    assert said in shown({"models": [model_entry("face", **fields)], "memory": MEMORY})
    assert said not in shown({"models": [model_entry("face", pins=["command"])], "memory": MEMORY})


def test_versions_in_use_are_shown():
    versions = [{"version": "1", "state": "unavailable"}, {"version": "2", "state": "ready"}]
    assert "face/2 " in shown({"models": [model_entry("face", versions=versions)], "memory": MEMORY})


def test_no_models_at_all():
    assert "Triton has not answered yet" in shown({"models": [], "memory": MEMORY})


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"budget": None, "free": None}, "memory: no budget; models are loaded at the start and by command"),
        ({"unit": "models", "budget": 2, "held": 1, "free": 1}, "memory: 1 of 2 models held, 1 free"),
        (
            {"region": 16 << 20, "headroom": 8 << 20, "lost": 4 << 20},
            "memory: 64.0 MiB of 96.0 MiB held (16.0 MiB for those that take turns), 32.0 MiB free, 8.0 MiB more while"
            " models unload, 4.0 MiB lost: the device holds more than its models",
        ),
    ],
)
def test_the_budget_in_a_sentence(fields, line):
    assert memory_line(Models.from_json({"models": [], "memory": MEMORY | fields}).memory) == line


@pytest.mark.parametrize(
    ("value_ms", "text"),
    [(0, "0 ms"), (999, "999 ms"), (1_500, "1.5 s"), (59_900, "59.9 s"), (90_000, "2 min"), (7_200_000, "2.0 h")],
)
def test_times(value_ms, text):
    assert in_time(value_ms) == text


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4096", 4096),
        ("512B", 512),
        ("2GiB", 2 << 30),
        ("500MB", 500_000_000),
        ("1.5g", 1_500_000_000),
        (" 8 gib ", 8 << 30),
        ("1TiB", 1 << 40),
    ],
)
def test_sizes_are_read(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "-1", "2 XB", "1e9", "nan", "1.GiB", "2iB"])
def test_what_is_no_size(text):
    with pytest.raises(ValueError, match="is no size"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (200 << 20, "200 MiB"), (3 << 40, "3.0 TiB")],
)
def test_sizes_are_shown(value, text):
    assert in_bytes(value) == text
