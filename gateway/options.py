"""Values of command-line options that several commands take."""

from __future__ import annotations

import typer

from gateway.sizes import parse_bytes


def memory_size(text: str) -> int:
    """Read the value of ``--memory-budget``, in bytes.

    Raises:
        typer.BadParameter: It is no size, or none at all.
    """
    try:
        size = parse_bytes(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if size < 1:
        raise typer.BadParameter("at least one byte is needed")
    return size
