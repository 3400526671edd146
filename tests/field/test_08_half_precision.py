"""Report 8: half precision passes bit by bit, as binary data only; what is not finite breaks no answer."""

import json

import numpy as np
import pytest

from gateway.core.profile import Profile, ProfileEntry
from tests.api.served import Served, v2_error
from tests.api.v2_support import binary, infer, outputs_of, tensor
from tests.stand_in import Model

#: All patterns of 16 bits; the last two once more, as the last axis has three elements.
PATTERNS = np.append(np.arange(65_536), [65_534, 65_535]).astype("<u2")
SHAPE = (2, 10_923, 3)
NOT_FINITE = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-45, 1.5], "<f4")


@pytest.fixture
def serve(monkeypatch):
    """Serve the echo model of a datatype, with a profile of one shape: such frames go through the arena."""

    def served(datatype, shape=(1, 1, 3), **settings):
        profile = Profile(entries=(ProfileEntry("echo", "1", shape, datatype, 1, 100, 10.0, 10.0, 10.0),))
        monkeypatch.setattr("tests.api.served.profile", lambda *_: profile)
        return Served(Model("echo", datatype=datatype), **settings)

    return served


@pytest.mark.parametrize("memory", ["auto", "off"])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("datatype", ["FP16", "BF16"])
def test_every_bit_pattern_comes_back(serve, datatype, known, memory):
    """As frames, and, of a shape that is not profiled, as they came."""
    content = PATTERNS.tobytes()
    with serve(datatype, SHAPE if known else (1, 1, 3), triton={"shared_memory": memory}) as served:
        wanted = [{"name": "echo"}]
        call = binary([tensor([1, *SHAPE], datatype=datatype, size=len(content))], content, outputs=wanted)
        document, outputs = outputs_of(infer(served, call))
        [last] = served.stand_in.log("infer")[-1:]
        assert last.way == ("shm" if known and memory == "auto" else "message")
        assert outputs["echo"] == content
        assert document["outputs"][0]["datatype"] == datatype


@pytest.mark.parametrize("datatype", ["FP16", "BF16"])
def test_as_json_it_is_refused_before_it_is_run(serve, datatype):
    with serve(datatype) as served:
        served.stand_in.calls.clear()
        answer = infer(served, {"json": {"inputs": [tensor([1, 1, 1, 3], [1, 2, 3], datatype=datatype)]}})
        assert "binary data format" in v2_error(answer, 400, "invalid_inference")["error"]
        call = binary([tensor([1, 1, 1, 3], datatype=datatype, size=6)], bytes(6), binary_data_output=False)
        assert "binary_data" in v2_error(infer(served, call), 400, "invalid_inference")["error"]
        assert served.stand_in.log("infer") == []


def test_what_is_not_finite_is_null_in_json_and_itself_in_binary(serve):
    content = NOT_FINITE.tobytes()
    with serve("FP32") as served:
        item = tensor([1, 2, 1, 3], datatype="FP32", size=len(content))
        _, outputs = outputs_of(infer(served, binary([item], content)))
        assert outputs["echo"] == content
        answer = infer(served, binary([item], content, binary_data_output=False))
        document = json.loads(answer.content, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
        [echo] = [output for output in document["outputs"] if output["name"] == "echo"]
        assert echo["data"] == [None, None, None, 0.0, 1e-45, 1.5]
        assert np.signbit(echo["data"][3])


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e400", "1e39", "null", '"NaN"'])
def test_what_is_not_finite_is_refused_in_json(serve, text):
    item = json.dumps(tensor([1, 1, 1, 3], [1, 2, "?"], datatype="FP32")).replace('"?"', text)
    with serve("FP32") as served:
        answer = infer(served, {"content": f'{{"inputs": [{item}]}}'.encode()})
        v2_error(answer, 400, "invalid_inference")
