"""From the engine's view of models and memory to their JSON."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from gateway.api.model_schemas import Memory, ModelEntry, ModelVersion
from gateway.core.types import NS_PER_MS, ModelState
from gateway.core.view import MemoryView, ModelView
from gateway.runtime.gateway import Gateway
from gateway.triton.types import IndexEntry

Shape = tuple[int, ...]
#: By model and version.
Shapes = defaultdict[str, defaultdict[str, set[Shape]]]

#: The state of a version that is in the profile, but not in Triton's list.
ABSENT = "absent"


def entries(gateway: Gateway, views: Iterable[ModelView]) -> list[ModelEntry]:
    """Return these models of `gateway` as they stand."""
    now_ns, profile = gateway.now_ns, gateway.profile
    shapes: Shapes = defaultdict(lambda: defaultdict(set))
    for each in profile.entries:
        shapes[each.model][each.version].add(each.shape)
    single: Shapes = defaultdict(lambda: defaultdict(set))
    for category in gateway.limited:
        single[category.model][category.version].add(category.shape)
    listed: dict[str, dict[str, IndexEntry]] = defaultdict(dict)
    for line in gateway.model_facts.states():
        if line.version:
            listed[line.name][line.version] = line
    sizes: dict[str, int] = {}
    for model in profile.models:
        sizes[model.model] = max(model.bytes, sizes.get(model.model, 0))
    return [
        ModelEntry(
            name=view.model,
            state=view.state.value,
            reason=_reason(gateway, view),
            versions=_versions(listed[view.model], shapes[view.model], single[view.model]),
            **_bytes(view, sizes.get(view.model), in_bytes=gateway.memory.unit == "bytes"),
            pins=list(view.pins),
            swap_region=view.region,
            barred=view.barred,
            frames_waiting=view.waiting,
            last_used_ago_ms=None if view.last_use_ns is None else max(0, now_ns - view.last_use_ns) / NS_PER_MS,
            next_use_in_ms=None if view.next_use_ns is None else max(0, view.next_use_ns - now_ns) / NS_PER_MS,
            retry_in_ms=None if view.retry_ns is None else max(0, view.retry_ns - now_ns) / NS_PER_MS,
        )
        for view in views
    ]


def _reason(gateway: Gateway, view: ModelView) -> str:
    note = gateway.model_note(view.model) if view.state is ModelState.RESIDENT else ""
    return note or view.reason


def _versions(
    listed: Mapping[str, IndexEntry], shapes: Mapping[str, set[Shape]], single: Mapping[str, set[Shape]]
) -> list[ModelVersion]:
    """Return the versions of a model that Triton lists or the profile has, lowest first."""
    return [
        ModelVersion(
            version=version,
            state=listed[version].state if version in listed else ABSENT,
            reason=listed[version].reason if version in listed else "",
            profiled_shapes=sorted(shapes.get(version, ())),
            single_frame_shapes=sorted(single.get(version, ())),
        )
        for version in sorted(shapes.keys() | listed.keys(), key=lambda number: (len(number), number))
    ]


def _bytes(view: ModelView, profiled: int | None, *, in_bytes: bool) -> dict[str, int | None]:
    """Return size and memory of a model: the engine's where it counts bytes and knows them, else the profile's."""
    size = view.size if in_bytes and view.size is not None else profiled
    if view.state.away:
        return {"size_bytes": size, "held_bytes": 0}
    return {"size_bytes": size, "held_bytes": view.held if in_bytes and view.held else size}


def memory(view: MemoryView) -> Memory:
    """Return the budget and what is held of it."""
    return Memory(
        unit=view.unit,
        budget=view.budget,
        headroom=view.headroom,
        held=view.held,
        region=view.region,
        lost=view.lost,
        free=None if view.budget is None else max(0, view.budget - view.held - view.lost),
    )
