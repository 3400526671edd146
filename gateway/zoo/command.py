"""`framegate zoo`: build and list the models."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.status import Status

zoo = typer.Typer(name="zoo", help="Build the models of the model repository.", no_args_is_help=True)

_Repository = Annotated[
    Path | None,
    typer.Option("--model-repository", help="Default: ./model_repository if there is one, else the checkout's."),
]


@zoo.command("build")
def build_models(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME...", help="Models to build.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All eight: 14 GB of memory, minutes.")] = False,
    weights: Annotated[str, typer.Option(help="random, or imagenet (downloaded by Keras).")] = "random",
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Of random weights.")] = 0,
    model_repository: _Repository = None,
) -> None:
    """Build models; those that are there and unchanged are left alone."""
    # Imported here to keep `framegate --help` quick.
    from rich.console import Console

    from gateway.errors import ZooError
    from gateway.zoo.build import Weights, build
    from gateway.zoo.registry import MODELS, find

    if bool(names) == every:
        raise typer.BadParameter("name the models to build, or give --all")
    if weights not in set(Weights):
        raise typer.BadParameter(f"--weights is one of {', '.join(Weights)}")
    console = Console(stderr=True)
    try:
        specs = list(MODELS.values()) if every else [find(name) for name in dict.fromkeys(names or [])]
        for spec in specs:
            with console.status(f"{spec.name}: checking") as status:
                fresh = build(
                    spec.name,
                    model_repository,
                    weights=Weights(weights),
                    seed=seed,
                    progress=partial(_show, status, spec.name),
                )
            console.print(f"{spec.name}: {'built' if fresh else 'already there'}", highlight=False)
    except ZooError as error:
        console.print(f"error: {error.detail}", style="red", highlight=False, markup=False)
        raise typer.Exit(1) from error


def _show(status: Status, name: str, text: str) -> None:
    status.update(f"{name}: {text}")


@zoo.command("clips")
def clips() -> None:
    """Fetch the demo's video clips (2 MB) and print where they are."""
    from gateway.errors import ZooError
    from gateway.zoo.clips import fetch_all

    try:
        for path in fetch_all().values():
            typer.echo(path)
    except ZooError as error:
        typer.secho(f"error: {error.detail}", fg="red", err=True)
        raise typer.Exit(1) from error


@zoo.command("list")
def list_models(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    model_repository: _Repository = None,
) -> None:
    """List the models and what is built of them."""
    from gateway.zoo.files import default_repository, is_intact, read_manifest
    from gateway.zoo.registry import MODELS

    repository = model_repository or default_repository()
    rows: list[dict[str, Any]] = []
    for spec in MODELS.values():
        directory = repository / spec.name / "1"
        manifest = read_manifest(directory)
        if manifest is None:
            state = "unknown file" if (directory / spec.file).exists() else "not built"
        else:
            state = "built" if is_intact(directory, manifest) else "damaged"
        rows.append(
            {
                "name": spec.name,
                "file": spec.file,
                "source": spec.source,
                "state": state,
                "weights": manifest.weights if manifest else None,
                "seed": manifest.seed if manifest else None,
                "sha256": manifest.sha256 if manifest else None,
            }
        )
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    shown = [("MODEL", "STATE", "FILE", "WEIGHTS", "MADE FROM")]
    shown += [(row["name"], row["state"], row["file"], _describe_weights(row), row["source"]) for row in rows]
    for name, state, file, weights, source in shown:
        typer.echo(f"{name:<14}{state:<14}{file:<16}{weights:<20}{source}")


def _describe_weights(row: dict[str, Any]) -> str:
    """Say where a built model's weights come from; nothing is built, nothing said."""
    words = {
        "random": f"random, seed {row['seed']}",
        "imagenet": "trained, ImageNet",
        "published": "trained by authors",
    }
    return words.get(row["weights"], row["weights"] or "")
