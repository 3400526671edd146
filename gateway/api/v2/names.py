"""Names of models and versions, checked before anything is looked up or sent on."""

from __future__ import annotations

import re

from gateway.errors import UnknownModel
from gateway.runtime.models import MODEL_NAME

#: Triton's versions are positive integers, written without leading zeros.
_VERSION = re.compile(r"[1-9][0-9]{0,17}")

_LISTED = "GET /v1/models lists what there is."


def check_model(model: str) -> None:
    """Raise `UnknownModel` for a name that no model can have here. What was sent is not echoed."""
    if MODEL_NAME.fullmatch(model) is None:
        raise UnknownModel(f"Request for unknown model: its name is not of the form {MODEL_NAME.pattern}. {_LISTED}")


def check_version(model: str, version: str) -> None:
    """Raise `UnknownModel` for a version that no model can have."""
    if _VERSION.fullmatch(version) is None:
        raise UnknownModel(
            f"Request for unknown model: '{model}' has no such version; versions are 1, 2, ... {_LISTED}"
        )
