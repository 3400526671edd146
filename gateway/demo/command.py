"""``framegate demo``: the whole of Framegate on this machine, in about a minute."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console


def demo(
    seconds: Annotated[float, typer.Option(min=5, max=3600, help="How long the cameras send.")] = 20.0,
    output: Annotated[Path, typer.Option(help="Where pictures, summary and logs go.")] = Path("demo_output"),
    json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON, as the last line.")] = False,
) -> None:
    """Real video through a real model on a real Triton: cameras admitted, one refused, every frame accounted for.

    Exit code 0 only if the books balance, at least 99 % of the frames met
    their deadline, the face was found, the outputs agree with an independent
    run, and one camera was refused with the reason.
    """
    from rich.console import Console

    console = Console(stderr=json, highlight=False, soft_wrap=True)
    document = _run(seconds, output, console)
    _tell(document, output, console)
    if json:
        import orjson

        console.file.flush()
        typer.echo(orjson.dumps(document).decode())
    raise typer.Exit(1 if document["failures"] else 0)


def _run(seconds: float, output: Path, console: Console) -> dict[str, Any]:
    """Run the demo; on failure say why and show the ends of the logs."""
    from gateway.client.problems import GatewayUnreachable, ProblemError
    from gateway.client.video import SourceError
    from gateway.demo.progress import DemoError, tail
    from gateway.demo.run import run_demo
    from gateway.errors import FramegateError

    try:
        return run_demo(seconds, output, console)
    except (DemoError, FramegateError, ProblemError, GatewayUnreachable, SourceError) as error:
        reason = str(error)
    except OSError as error:
        console.print(f"error: {error}", style="bold red", markup=False)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        console.print("stopped")
        raise typer.Exit(130) from None
    for log in (output / "triton.log", output / "gateway.log"):
        if end := tail(log, lines=12):
            console.print(f"--- the end of {log}:\n{end}", markup=False)
    console.print(f"the demo failed: {reason}", style="bold red", markup=False)
    raise typer.Exit(1)


def _tell(document: dict[str, Any], output: Path, console: Console) -> None:
    console.print("\n" + "\n".join(closing_lines(document, str(output))), markup=False)
    for line in document["failures"]:
        console.print(f"FAILED: {line}", style="bold red", markup=False)


def closing_lines(document: dict[str, Any], output: str) -> list[str]:
    """Return what the demo's summary says, for people, at most 80 columns wide."""
    found = document["compared"]
    jobs = ", ".join(f"{size}: {count}" for size, count in document["jobs_by_batch"].items())
    return [
        f"{document['frames']} frames of {document['streams_admitted']} cameras in {document['seconds']:.1f} s:",
        f"  {document['met']} met their deadline, {document['missed']} missed, {document['expired']} expired, "
        f"{document['failed']} failed",
        f"  the books {'balance' if document['books'] == 'balanced' else 'DO NOT BALANCE'}",
        f"  latency p50 {document['p50_latency_ms']} ms, p99 {document['p99_latency_ms']} ms",
        f"  {document['mean_batch']} frames per job: jobs by number of frames {jobs}",
        f"  {document['jobs_over_profile_share']:.1%} of {document['jobs']} jobs took longer than their profiled time",
        *(f"  {line}" for line in document["advice"]),
        f"  a face in {document['faces_found']:.1%} of the carphone frames",
        f"  outputs of {found['frames']} frames, {found['batched']} of them from larger batches, are within",
        f"  {found['max_abs_error']:.1e} of those of an independent run",
        f"see {output}/annotated.png, latency.png, summary.json",
    ]
