"""What tests of `/v2` share: infer calls with binary tensor data."""

from __future__ import annotations

import json

FRAMES = "frames"
HEADER = "Inference-Header-Content-Length"


def tensor(shape, data=None, *, name=FRAMES, datatype="UINT8", size=None, **parameters):
    """Return an input: with `data`, or with the `size` of its bytes."""
    item = {"name": name, "datatype": datatype, "shape": list(shape)}
    if data is not None:
        item["data"] = data
    if size is not None:
        parameters["binary_data_size"] = size
    return {**item, "parameters": parameters} if parameters else item


def binary(inputs, content, *, outputs=None, identifier=None, **parameters):
    """Return headers and body of a call whose tensors are binary, both ways."""
    document = {"inputs": inputs, "parameters": {"binary_data_output": True, **parameters}}
    if outputs is not None:
        document["outputs"] = outputs
    if identifier is not None:
        document["id"] = identifier
    head = json.dumps(document).encode()
    return {"headers": {HEADER: str(len(head))}, "content": head + content}


def infer(served, call, model="echo", version=None):
    versions = "" if version is None else f"/versions/{version}"
    return served.http.post(f"/v2/models/{model}{versions}/infer", **call)


def outputs_of(answer):
    """Return the document of an answer, and its outputs: bytes by name, or lists where they are JSON."""
    assert answer.status_code == 200, answer.text
    size = int(answer.headers.get(HEADER, len(answer.content)))
    document, rest = json.loads(answer.content[:size]), answer.content[size:]
    found = {}
    for output in document["outputs"]:
        length = output.get("parameters", {}).get("binary_data_size")
        if length is None:
            found[output["name"]] = output["data"]
        else:
            found[output["name"]], rest = rest[:length], rest[length:]
    assert not rest
    return document, found
