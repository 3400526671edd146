"""What can be asked for: models of the repository and the profile of this device."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from fastapi import APIRouter, Response

from gateway.api.answers import ModelEntry, ModelList
from gateway.api.problems import describe
from gateway.api.results import dump
from gateway.api.state import State
from gateway.core.profile import Profile
from gateway.errors import TritonUnavailable

router = APIRouter(prefix="/v1", tags=["models"])


@router.get("/models", response_model=ModelList, responses=describe(TritonUnavailable))
async def list_models(state: State) -> ModelList:
    """Return the models of Triton's repository, their state, and the shapes that can be admitted."""
    shapes = _profiled_shapes(state.gateway.profile)
    limited = state.gateway.view().limited
    return ModelList(
        models=[
            ModelEntry(
                name=model.name,
                version=model.version,
                state=model.state,
                reason=model.reason,
                profiled_shapes=sorted(shapes[model.name, model.version]),
                single_frame_shapes=[c.shape for c in limited if (c.model, c.version) == (model.name, model.version)],
            )
            for model in state.gateway.model_facts.states()
        ]
    )


def _profiled_shapes(profile: Profile) -> dict[tuple[str, str], set[tuple[int, ...]]]:
    shapes: dict[tuple[str, str], set[tuple[int, ...]]] = defaultdict(set)
    for entry in profile.entries:
        shapes[entry.model, entry.version].add(entry.shape)
    return shapes


_PROFILE: dict[int | str, dict[str, Any]] = {
    200: {"description": "The profile file's content.", "content": {"application/json": {"schema": {"type": "object"}}}}
}


@router.get("/profile", responses=_PROFILE, response_class=Response)
async def get_profile(state: State) -> Response:
    """Return the execution times that admission rests on."""
    return Response(dump(state.gateway.profile.to_dict()), media_type="application/json")
