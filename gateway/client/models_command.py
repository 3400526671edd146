"""``framegate models``: what is in memory, and load, unload, pin by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gateway.client.address import DEFAULT_URL, parse_url

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gateway.client.client import FramegateClient
    from gateway.client.models import ModelInfo, Models

models = typer.Typer(name="models", help="List the models of a gateway; load, unload and pin them.")

_Url = Annotated[str, typer.Option("--url", help="The gateway.")]
_Json = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]
_All = Annotated[bool, typer.Option("--all", help="Also those that are not profiled and not loaded.")]
_Name = Annotated[str, typer.Argument(metavar="MODEL", help="Triton's name of the model.")]


@models.callback(invoke_without_command=True)
def overview(ctx: typer.Context, *, all_: _All = False, url: _Url = DEFAULT_URL, json: _Json = False) -> None:
    """List the models. With a command: load, unload or pin one."""
    if ctx.invoked_subcommand is None:
        list_models(all_=all_, url=url, json=json)
    elif url != DEFAULT_URL or json or all_:
        raise typer.BadParameter(f"options go behind the command: framegate models {ctx.invoked_subcommand} ... --url")


@models.command("list")
def list_models(*, all_: _All = False, url: _Url = DEFAULT_URL, json: _Json = False) -> None:
    """List the models: version, state, memory, when each was used and will be, and why it has to stay."""
    _run(url, lambda client: client.models(), as_json=json, everything=all_)


@models.command("load")
def load(name: _Name, *, url: _Url = DEFAULT_URL, json: _Json = False) -> None:
    """Load a model, or what is new of it if it is loaded; wait until it can be used.

    Idle models go if it needs their room. Ctrl-C ends the wait, not the load.
    """
    _run(url, lambda client: client.load_model(name), name, as_json=json)


@models.command("unload")
def unload(
    name: _Name,
    *,
    force: Annotated[
        bool, typer.Option("--force", help="Even if streams or a pin need it: their frames fail from then on.")
    ] = False,
    url: _Url = DEFAULT_URL,
    json: _Json = False,
) -> None:
    """Unload a model, and keep it out until it is loaded by hand; wait until it is gone."""
    _run(url, lambda client: client.unload_model(name, force=force), name, as_json=json)


@models.command("pin")
def pin(name: _Name, *, url: _Url = DEFAULT_URL, json: _Json = False) -> None:
    """Keep a model in memory; one that is absent is loaded as soon as there is room."""
    _run(url, lambda client: client.pin_model(name), name, as_json=json)


@models.command("unpin")
def unpin(name: _Name, *, url: _Url = DEFAULT_URL, json: _Json = False) -> None:
    """Let a model go again when others need its room. Streams that need it still keep it."""
    _run(url, lambda client: client.pin_model(name, pinned=False), name, as_json=json)


def _run(
    url: str,
    call: Callable[[FramegateClient], Awaitable[Models | ModelInfo]],
    model: str = "",
    *,
    as_json: bool,
    everything: bool = False,
) -> None:
    """Make the call and print its answer; exit status 1 and the reason on standard error if it is refused."""
    import asyncio

    from rich.console import Console

    from gateway.client.client import FramegateClient
    from gateway.client.models_refused import refused
    from gateway.client.models_show import show
    from gateway.client.problems import GatewayUnreachable, ProblemError

    async def answered() -> Models | ModelInfo:
        async with FramegateClient(parse_url(url)) as client:
            return await call(client)

    problems = Console(stderr=True, highlight=False, soft_wrap=True)
    try:
        answer = asyncio.run(answered())
    except ProblemError as error:
        problems.print(f"error: {refused(error, model)}", style="bold red", markup=False)
        if as_json:
            _print_json(error.document)
        raise typer.Exit(1) from None
    except GatewayUnreachable as error:
        problems.print(f"error: {error}", style="bold red", markup=False)
        problems.print(f"is `framegate serve` running at {url}? --url says where else it is", markup=False)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    if as_json:
        _print_json(answer.raw)
    else:
        show(answer, Console(highlight=False), everything=everything)


def _print_json(document: object) -> None:
    import orjson

    typer.echo(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())
