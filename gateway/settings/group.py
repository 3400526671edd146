"""What all groups of settings share."""

from __future__ import annotations

import re

from pydantic import BaseModel, ConfigDict

MIB = 1 << 20
MAX_PORT = 65_535
NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000
#: host:port; a name, an IPv4 address or an IPv6 address in brackets.
ADDRESS = re.compile(r"(?:[\w.-]+|\[[\w:.%]+\]):(\d{1,10})", re.ASCII)


class Group(BaseModel):
    """A group of settings: typing errors in names are errors, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True)
