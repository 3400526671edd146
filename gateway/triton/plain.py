"""Triton's messages as the plain values that its HTTP side writes: 64-bit integers as numbers, enumerations by name.

(protobuf's own JSON has such integers as strings.)
"""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message


def plain(message: Message) -> dict[str, Any]:
    """Return a message as a dict: all fields, but of a oneof and of messages only what is set."""
    values: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if _is_map(field):
            of_messages = field.message_type.fields_by_name["value"].message_type is not None
            values[field.name] = {str(key): plain(value[key]) if of_messages else value[key] for key in sorted(value)}
        elif field.label == FieldDescriptor.LABEL_REPEATED:
            values[field.name] = [_one(field, item) for item in value]
        elif not field.has_presence or message.HasField(field.name):
            values[field.name] = _one(field, value)
    return values


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _one(field: FieldDescriptor, value: Any) -> Any:  # noqa: ANN401 - any field's
    if field.message_type is not None:
        return plain(value)
    if field.enum_type is not None:
        return field.enum_type.values_by_number[value].name
    return value.decode(errors="replace") if isinstance(value, bytes) else value
