"""The `framegate` command: assembles what each part offers, imports nothing heavy itself."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

#: Subcommand -> where its function lives. Each module imports its heavy parts inside the function.
#: Two words where the first alone is a command as well.
COMMANDS = {
    "serve": "gateway.api.command:serve",
    "triton": "gateway.triton.command:triton",
    "stream": "gateway.client.command:stream",
    "profile": "profiler.command:profile",
    "profile interference": "profiler.interference_command:interference",
    "simulate": "gateway.sim.command:simulate",
    "plan": "gateway.capacity.command:plan",
    "accuracy": "gateway.capacity.command:accuracy",
    "demo": "gateway.demo.command:demo",
}
#: Group of subcommands -> where its typer application lives.
GROUPS = {
    "models": "gateway.client.models_command:models",
    "zoo": "gateway.zoo.command:zoo",
}


def _load(target: str) -> Callable[..., Any]:
    module, _, name = target.partition(":")
    function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return function


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"framegate {version('framegate')}")
        raise typer.Exit


class _Commands(TyperGroup):
    """Takes two words for one command if there is one: `profile --model x`, and `profile interference --model x`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:  # noqa: ANN401
        """Return name, command and the arguments that are left for it.

        Their types are click's own or those of the copy that newer versions of typer carry: either way not to be named.
        """
        name = " ".join(args[:2])
        if name in COMMANDS and (command := self.get_command(ctx, name)) is not None:
            return name, command, args[2:]
        return super().resolve_command(ctx, args)


def build_app() -> typer.Typer:
    """Return the command line with every subcommand."""
    app = typer.Typer(
        name="framegate", cls=_Commands, no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False
    )

    @app.callback()
    def main(
        _version: Annotated[
            bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
        ] = False,
    ) -> None:
        """A soft real-time gateway in front of NVIDIA Triton Inference Server."""

    for name, target in COMMANDS.items():
        longer = [f"framegate {other}" for other in COMMANDS if other.startswith(f"{name} ")]
        app.command(name, epilog=f"See also: {', '.join(longer)}" if longer else None)(_load(target))
    for name, target in GROUPS.items():
        app.add_typer(_load(target), name=name)  # type: ignore[arg-type]
    return app


app = build_app()
