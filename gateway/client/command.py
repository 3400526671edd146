"""``framegate stream``: send a video to the gateway as a camera would."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from gateway.client.address import DEFAULT_URL, parse_url

if TYPE_CHECKING:
    from rich.console import Console

    from gateway.client.agent import AgentOptions

#: Exit code for "the gateway refused the stream", as opposed to 1, "it did not work".
EXIT_REFUSED = 3


def parse_shape(text: str) -> tuple[int, int]:
    """Read ``HxW``.

    Raises:
        typer.BadParameter: It is not that.
    """
    match = re.fullmatch(r"([1-9]\d{0,4})[xX]([1-9]\d{0,4})", text.strip())
    if match is None:
        raise typer.BadParameter(f"{text!r} is not HEIGHTxWIDTH, for example 144x176")
    return int(match[1]), int(match[2])


def stream(  # noqa: PLR0917 - each is an option of the command
    source: Annotated[
        str, typer.Argument(help="A video file, a V4L2 device (/dev/video0) or a URL (rtsp://, http://)")
    ],
    model: Annotated[str, typer.Option(help="Triton's name of the model.")],
    fps: Annotated[float, typer.Option(min=0.001, max=10_000, help="Frames per second.")],
    deadline_ms: Annotated[float, typer.Option(min=0.1, help="Time from a frame's arrival to its result.")],
    shape: Annotated[str, typer.Option(help="Resize to HxW; the source's own size if not given.")] = "",
    frames: Annotated[int, typer.Option(min=0, help="Stop after so many frame periods; 0: no limit.")] = 0,
    duration_s: Annotated[float, typer.Option(min=0, help="Send for this long, then stop; 0: no limit.")] = 0.0,
    burst: Annotated[
        int, typer.Option(min=1, max=1024, help="Send groups of this many frames, as chunked video comes.")
    ] = 1,
    jitter_ms: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Declare that frames may come this much late, to admission; it makes none late. A quarter of 1/fps "
            "if not given: so late a frame is still sent.",
        ),
    ] = None,
    best_effort: Annotated[
        bool,
        typer.Option("--best-effort", help="Ask for no promise: frames get what real-time streams leave."),
    ] = False,
    on_excess: Annotated[
        Literal["refuse", "best_effort"],
        typer.Option(
            help="What becomes of frames that come earlier than was declared: refused, or served as best effort."
        ),
    ] = "refuse",
    on_late: Annotated[
        Literal["drop", "serve", "newest"],
        typer.Option(
            help="What becomes of a frame that is late before it starts: it expires, is served late, or (newest) "
            "expires, and what still waits when the next one is sent is cancelled."
        ),
    ] = "drop",
    swapping: Annotated[
        bool,
        typer.Option("--swapping", help="If memory is short, the model may take turns with others of such streams."),
    ] = False,
    loop: Annotated[bool, typer.Option("--loop", help="Start a file again at its end.")] = False,
    url: Annotated[str, typer.Option(help="The gateway.")] = DEFAULT_URL,
    http: Annotated[
        bool, typer.Option("--http", help="Send each frame by a call of its own, not over a WebSocket.")
    ] = False,
    name: Annotated[str, typer.Option(help="A label for people.")] = "",
    json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON, as the last line.")] = False,
) -> None:
    """Send a video as a camera: register, send at the true rate, show what became of the frames.

    Each frame ends as met, missed (late), expired, cancelled or failed; or it
    was refused (the gateway did not accept it), lost (no answer came) or
    skipped (not sent: no picture, too late, or too many in flight). A frame
    that is skipped uses up its period.

    While the gateway is away frames are lost; after its restart the stream is
    registered again. Ctrl-C ends it in order.

    Exit code 1: frames were lost, or a problem stopped it; 3: the stream was
    refused: why, and what would have been admitted, is printed.
    """
    from rich.console import Console

    from gateway.client.agent import AgentOptions

    others = {
        "service_class": "best_effort" if best_effort else None,
        "on_excess": None if on_excess == "refuse" else on_excess,
        "on_late": None if on_late == "drop" else on_late,
        "swapping": swapping or None,
    }
    options = AgentOptions(
        source=source,
        model=model,
        fps=fps,
        deadline_ms=deadline_ms,
        shape=parse_shape(shape) if shape else None,
        frames=frames or None,
        duration_s=duration_s or None,
        loop=loop,
        url=parse_url(url),
        http=http,
        name=name,
        burst=burst,
        jitter_ms=jitter_ms,
        fields={field: value for field, value in others.items() if value is not None},
    )
    raise typer.Exit(_run(options, Console(stderr=json, highlight=False, soft_wrap=True), as_json=json))


def _run(options: AgentOptions, console: Console, *, as_json: bool) -> int:
    import asyncio
    from functools import partial

    from gateway.client.agent import explain_refusal, flag_of
    from gateway.client.problems import GatewayUnreachable, NotSchedulable, ProblemError
    from gateway.client.screen import summary_lines
    from gateway.client.video import SourceError

    try:
        summary = asyncio.run(_until_signalled(options, console))
    except NotSchedulable as refused:
        console.print(f"refused: {refused.detail}", style="bold red", markup=False)
        flag = partial(flag_of, burst=options.burst)
        for line in explain_refusal(refused.evidence, refused.counter_offers, flag):
            console.print(f"  {line}", markup=False)
        _print_json({"refused": dict(refused.document)}, as_json=as_json)
        return EXIT_REFUSED
    except (SourceError, ProblemError, GatewayUnreachable) as error:
        console.print(f"error: {error}", style="bold red", markup=False)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        console.print("stopped before the stream was admitted")
        return 130
    if as_json:
        _print_json(summary, as_json=True)
    else:
        for line in summary_lines(summary):
            console.print(line, markup=False)
    if summary["error"] is not None:
        console.print(f"error: {summary['error']}", style="bold red", markup=False)
        return 1
    return 0


async def _until_signalled(options: AgentOptions, console: Console) -> dict[str, Any]:
    """Run the agent; SIGTERM ends it as Ctrl-C does, so that the stream is closed."""
    import asyncio
    import signal

    from gateway.client.agent import run_agent

    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await run_agent(options, console)


def _print_json(document: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        import orjson

        typer.echo(orjson.dumps(document).decode())
