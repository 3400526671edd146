"""Whether the tensors of a call are those of its model, said in Triton's words."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.errors import BadInference
from gateway.triton.types import ModelMetadata, Tensor, TensorInfo


def check_inputs(model: ModelMetadata, inputs: Sequence[Tensor]) -> None:
    """Raise `BadInference` for inputs that the model does not have, of another type or shape, or that are missing.

    Which inputs are optional only Triton knows; so of a model with several it is asked.
    """
    known = {tensor.name: tensor for tensor in model.inputs}
    seen = set()
    for tensor in inputs:
        expected = known.get(tensor.name)
        if expected is None:
            raise BadInference(f"unexpected inference input '{tensor.name}' for model '{model.name}'")
        if tensor.name in seen:
            raise BadInference(f"input '{tensor.name}' already exists in request")
        seen.add(tensor.name)
        _check_input(model, expected, tensor)
    if not inputs:
        raise BadInference(
            f"expected {len(known)} inputs but got {len(inputs)} inputs for model '{model.name}'. "
            f"Missing required input(s) {sorted(known)}."
        )


def _check_input(model: ModelMetadata, expected: TensorInfo, tensor: Tensor) -> None:
    if tensor.datatype != expected.datatype:
        raise BadInference(
            f"inference input '{tensor.name}' data-type is '{tensor.datatype}', but model '{model.name}' "
            f"expects '{expected.datatype}'"
        )
    batched = model.max_batch_size > 0
    shape = tensor.shape[1:] if batched else tensor.shape
    same_rank = len(tensor.shape) == len(expected.shape) + batched
    if not same_rank or any(want not in (-1, have) for want, have in zip(expected.shape, shape, strict=True)):
        shown = ([-1] if batched else []) + list(expected.shape)
        raise BadInference(
            f"unexpected shape for input '{tensor.name}' for model '{model.name}'. Expected {shown}, got "
            f"{list(tensor.shape)}"
        )


def wanted_outputs(model: ModelMetadata, names: Sequence[str]) -> list[tuple[str, str]]:
    """Return name and datatype of the outputs that are asked for, all if none is. Raises `BadInference`."""
    known = {tensor.name: tensor.datatype for tensor in model.outputs}
    for name in names:
        if name not in known:
            raise BadInference(f"unexpected inference output '{name}' for model '{model.name}'")
    if len(set(names)) != len(names):
        raise BadInference("an output is asked for twice")
    return [(name, known[name]) for name in names or known]
