"""Where a gateway is, as the commands that talk to one are told."""

from __future__ import annotations

import re

DEFAULT_URL = "http://127.0.0.1:8000"


def parse_url(text: str) -> str:
    """Return the gateway's address as given.

    Raises:
        typer.BadParameter: It does not begin with ``http://`` or ``https://``.
    """
    if re.match(r"https?://[^/]", text) is None:
        import typer  # of the commands alone

        raise typer.BadParameter(
            f"{text!r} is no address of a gateway; did you mean http://{text.rpartition('//')[2]}?",
            param_hint="'--url'",
        )
    return text
