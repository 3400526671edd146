"""`framegate triton`: run the embedded Triton on its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_Port = Annotated[int, typer.Option(min=0, max=65_535, help="0 picks a free one.")]


def triton(
    *,
    model_repository: Annotated[
        Path | None, typer.Option(help="Default: ./model_repository if there is one, else the checkout's.")
    ] = None,
    log_file: Annotated[Path, typer.Option(help="Triton's output is appended here.")] = Path("run/triton.log"),
    load: Annotated[list[str] | None, typer.Option(help="Load this model at the start; may be repeated.")] = None,
    intra_op_threads: Annotated[int, typer.Option(min=0, max=1024, help="Of one execution; 0: one per core.")] = 0,
    http_port: _Port = 0,
    grpc_port: _Port = 0,
    metrics_port: _Port = 0,
) -> None:
    """Run the tritonserver of the wheel on loopback until SIGINT or SIGTERM."""
    # Imported here to keep `framegate --help` quick.
    import signal

    from gateway.errors import EmbeddedTritonError
    from gateway.paths import find_repository, make_writable
    from gateway.triton.embedded import EmbeddedTriton

    wanted = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, wanted)  # one that comes during the start is answered after it
    server = EmbeddedTriton(
        find_repository(model_repository),
        log_file,
        load or (),
        intra_op_threads=intra_op_threads,
        http_port=http_port,
        grpc_port=grpc_port,
        metrics_port=metrics_port,
    )
    try:
        make_writable(log_file.parent)
    except OSError as error:
        typer.echo(f"error: the log file {log_file} cannot be written: {error}", err=True)
        raise typer.Exit(2) from error
    try:
        server.start()
        typer.echo(f"gRPC     {server.grpc_url}\nHTTP     http://{server.http_url}")
        typer.echo(f"metrics  http://{server.metrics_url}/metrics\nlog      {log_file}")
        while signal.sigtimedwait(wanted, 0.5) is None:
            if not server.running:
                raise EmbeddedTritonError(f"tritonserver ended by itself; the end of {log_file} says why.")
    except EmbeddedTritonError as error:
        typer.echo(f"error: {error.detail}", err=True)
        raise typer.Exit(1) from error
    finally:
        server.stop()
