"""The `framegate` command: assembles what each part offers, imports nothing heavy itself."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from importlib.metadata import version
from typing import Annotated, Any

import typer

#: Subcommand -> where its function lives. Each module imports its heavy parts inside the function.
COMMANDS = {
    "serve": "gateway.api.command:serve",
    "triton": "gateway.triton.command:triton",
    "stream": "gateway.client.command:stream",
    "profile": "profiler.command:profile",
    "simulate": "gateway.sim.command:simulate",
    "demo": "gateway.demo.command:demo",
}


def _load(target: str) -> Callable[..., Any]:
    module, _, name = target.partition(":")
    function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return function


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"framegate {version('framegate')}")
        raise typer.Exit


def build_app() -> typer.Typer:
    """Return the command line with every subcommand."""
    app = typer.Typer(name="framegate", no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False)

    @app.callback()
    def main(
        _version: Annotated[
            bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
        ] = False,
    ) -> None:
        """A soft real-time gateway in front of NVIDIA Triton Inference Server."""

    for name, target in COMMANDS.items():
        app.command(name)(_load(target))
    app.add_typer(_load("gateway.zoo.command:zoo"), name="zoo")  # type: ignore[arg-type]
    return app


app = build_app()
