"""Frames as fast as they are taken: every server in turn, round by round, at every size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from benchmarks.frame_path import servers
from benchmarks.frame_path.loads import LoadError
from benchmarks.frame_path.servers import Place
from benchmarks.frame_path.sizes import EARLY, MAIN, PACED_PER_S, SINGLE, Size
from benchmarks.frame_path.targets import Target, measure
from benchmarks.swapping.results import Results
from gateway.triton.embedded import EmbeddedTriton

Say = Callable[[str], None]

#: In the order of the first round. `http` with our own sender instead of wrk is what `ws` is compared with as well.
ARMS = (
    "ceiling",
    "http",
    "http_early",
    "http_own_client",
    "ws",
    "http_single",
    "ceiling_paced",
    "http_single_paced",
    "triton",
    "triton_two_cores",
    "litserve",
    "mosec",
)
#: At the main size only.
_MAIN_ONLY = frozenset({"http_early", "http_own_client", "http_single", "ceiling_paced", "http_single_paced"})


class Throughput:
    """The part `frames`.

    Args:
        place: Where servers run.
        wide: Another Triton, on all processor cores.
        results: Where figures are kept, as ``frames <size>``.
        say: Told about every run.
        seconds: Of a run; whole ones.
        rounds: At each size.
        arms: Of `ARMS`.
    """

    def __init__(
        self,
        place: Place,
        wide: EmbeddedTriton | None,
        results: Results,
        say: Say,
        *,
        seconds: float,
        rounds: int,
        arms: Sequence[str],
    ) -> None:
        self._place = place
        self._wide = wide
        self._results = results
        self._say = say
        self._seconds = seconds
        self._rounds = rounds
        self._arms = arms

    def measure(self, sizes: Sequence[Size]) -> None:
        """Take all sizes that are not there yet."""
        for size in sizes:
            if (name := f"frames {size.name}") not in self._results:
                self._results.keep(name, self._size(size))

    def _size(self, size: Size) -> dict[str, list[dict[str, Any]]]:
        with ExitStack() as stack:
            targets = self._targets(size, stack)
            found: dict[str, list[dict[str, Any]]] = {name: [] for name in targets}
            names = list(targets)
            for number in range(self._rounds):
                turn = number % len(names)
                order = [*names[turn:], *names[:turn]]
                for name in order if number % 2 == 0 else order[::-1]:
                    found[name].append(self._run(targets[name]))
                    self._say(f"{size.name} {name}: {found[name][-1]}")
        return found

    def _run(self, target: Target) -> dict[str, Any]:
        """Measure once; a server that does not take this load says so in its row, and the others go on."""
        try:
            return measure(target, self._seconds)
        except LoadError as error:
            return {"error": str(error)}

    def _targets(self, size: Size, stack: ExitStack) -> dict[str, Target]:
        """Start all servers of the arms at a size."""
        place = self._place
        found: dict[str, Target] = {}
        wanted = [name for name in ARMS if name in self._arms and (size is MAIN or name not in _MAIN_ONLY)]
        if {"http", "ws", "http_own_client"} & set(wanted):
            http = stack.enter_context(servers.gateway_at(place, size, f"gateway-{size.name}"))
            found |= {
                "http": http,
                "http_own_client": replace(http, own_client=True),
                "ws": servers.over_websocket(http),
            }
        for name, other in (("http_early", EARLY), ("http_single", SINGLE)):
            if {name, f"{name}_paced"} & set(wanted):
                found[name] = stack.enter_context(servers.gateway_at(place, other, f"gateway-{name}"))
        if {"ceiling", "ceiling_paced"} & set(wanted):
            found["ceiling"] = stack.enter_context(servers.ceiling(place, size))
        for name in {"ceiling", "http_single"} & set(found):
            found[f"{name}_paced"] = replace(found[name], rate_per_s=PACED_PER_S)
        if "triton" in wanted:
            found["triton"] = servers.triton_http(place, size, place.triton)
        if "triton_two_cores" in wanted and self._wide is not None:
            found["triton_two_cores"] = servers.triton_http(place, size, self._wide)
        for name, rival in (("litserve", servers.litserve), ("mosec", servers.mosec)):
            if name in wanted:
                found[name] = stack.enter_context(rival(place, size))
        return {name: found[name] for name in wanted if name in found}
