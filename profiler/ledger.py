"""What was measured so far, on disk after every point, so that a run that is stopped goes on where it was.

Beside the profile ``box.json`` it is ``box.json.partial``: a profile itself, with one more field that says what run it
belongs to. It goes when all is measured; after failures it stays, so that the same command tries only those again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from gateway.core.profile import ModelEntry, Profile, ProfileEntry, ProfileError
from gateway.errors import FramegateError
from gateway.runtime.profile_file import read_profile, write_profile
from profiler.plan import Point

_SUFFIX = ".partial"


class Resume(StrEnum):
    """What to do with a partial file."""

    #: Go on with it if it belongs to this run, else begin again.
    IF_SAME = "if_same"
    #: Go on with it; refuse to begin again.
    MUST = "must"
    #: Begin again.
    NEVER = "never"


@dataclass
class Ledger:
    """The profile that grows.

    Attributes:
        out: Where the whole profile will be; None: nothing is written at all.
        resume: What to do with what an earlier run left.
        profile: What is known.
        resumed: How many points of it are an earlier run's.
        said: What became of an earlier run's file, for the user; empty if there was none.
    """

    out: Path | None = None
    resume: Resume = Resume.IF_SAME
    profile: Profile = field(default_factory=Profile)
    resumed: int = 0
    said: str = ""
    _run: dict[str, Any] = field(default_factory=dict)

    @property
    def partial(self) -> Path | None:
        """The file that is there while points are missing."""
        return None if self.out is None else self.out.with_name(self.out.name + _SUFFIX)

    def lost(self, models: Sequence[str]) -> list[str]:
        """Return the models of the profile that is to be replaced of which this run measures nothing."""
        if self.out is None or not self.out.exists() or not models:
            return []
        try:
            known = dict.fromkeys(entry.model for entry in read_profile(self.out).entries)
        except ProfileError:
            return []
        return [name for name in known if name not in models]

    def open(self, blank: Profile, plan: Mapping[str, Any]) -> None:
        """Begin with `blank`, which says device, Triton and engine, or with what an equal run left.

        Raises:
            FramegateError: To go on is a must, and there is nothing to go on with.
        """
        self.profile = blank
        self._run = {"device": blank.device, "triton_version": blank.triton_version, "engine": blank.engine, **plan}
        path = self.partial
        if path is None or self.resume is Resume.NEVER:
            return
        if not path.exists():
            if self.resume is Resume.MUST:
                raise FramegateError(f"There is nothing to resume: {path} does not exist.")
            return
        try:
            earlier, run = read_profile(path), json.loads(path.read_text(encoding="utf-8")).get("run")
        except ProfileError as error:
            fault = str(error)
        else:
            fault = "" if run == self._run else f"it was made with another {_difference(run, self._run)}"
        if fault and self.resume is Resume.MUST:
            raise FramegateError(f"{path} cannot be resumed: {fault}.")
        if fault:
            self.said = f"beginning again: {path} is not used, {fault}"
            return
        self.profile = replace(earlier, created=blank.created)
        self.resumed = len(earlier.entries)
        self.said = f"resuming: {self.resumed} points are there from {earlier.created} (--fresh measures them again)"

    def has(self, point: Point) -> bool:
        """Return whether `point` is there already."""
        category = point.category
        wanted = (category.model, category.version, category.shape, category.dtype, point.batch)
        return any((e.model, e.version, e.shape, e.dtype, e.batch) == wanted for e in self.profile.entries)

    def has_model(self, entry: ProfileEntry) -> bool:
        """Return whether the model of `entry` has its swap times."""
        return any((m.model, m.version) == (entry.model, entry.version) for m in self.profile.models)

    def add(self, entry: ProfileEntry) -> None:
        """Keep one more point."""
        self.profile = replace(self.profile, entries=(*self.profile.entries, entry))
        self._write()

    def add_model(self, entry: ModelEntry) -> None:
        """Keep one more model's swap times."""
        self.profile = replace(self.profile, models=(*self.profile.models, entry))
        self._write()

    def finish(self, *, complete: bool) -> None:
        """The run is over: write the profile; the partial file goes if nothing is missing."""
        if self.out is None or self.partial is None:
            return
        if self.profile.entries:
            write_profile(self.out, self.profile)
        if complete:
            self.partial.unlink(missing_ok=True)

    def _write(self) -> None:
        if self.partial is not None:
            write_profile(self.partial, self.profile, {"run": self._run})


def _difference(run: object, wanted: Mapping[str, Any]) -> str:
    if not isinstance(run, Mapping):
        return "program"
    names = [name for name in wanted if run.get(name) != wanted[name]]
    return ", ".join(names).replace("_", " ") or "program"
