"""A real Triton for the whole test session, and models built once into the checkout's own repository."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gateway.triton.embedded import EmbeddedTriton
from gateway.zoo.build import build
from gateway.zoo.files import default_repository


@pytest.fixture(scope="session")
def built_models() -> Callable[..., Path]:
    """Build the named models if they are not there; returns the model repository."""

    def ensure(*names: str) -> Path:
        for name in names:
            build(name)
        return default_repository()

    return ensure


@pytest.fixture(scope="session")
def triton_server(
    built_models: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EmbeddedTriton]:
    """A running Triton with centerface in its repository; no model is loaded."""
    log_file = tmp_path_factory.mktemp("triton") / "triton.log"
    with EmbeddedTriton(built_models("centerface"), log_file) as triton:
        yield triton
