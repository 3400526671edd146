"""The trivial model in LitServe: ``python -m benchmarks.frame_path.litserve_server PORT``.

LitServe takes JSON or forms; a frame goes as the file of a form, which carries its bytes as they are. Its front end,
FastAPI in uvicorn, stays on the processor core on which it is started; the rest is in `benchmarks.frame_path.rival`.

LitServe makes its route from the annotations of `decode_request` and `encode_response`: without any, it hands on forms
and does not check answers.
"""

import sys
from typing import Any

import litserve
import numpy.typing as npt

from benchmarks.frame_path.rival import Rival, first_value

FIELD = "frame"


class FirstValue(litserve.LitAPI):  # type: ignore[misc]  # its types are not looked at
    """The first value of each channel of each frame."""

    def setup(self, device: object) -> None:
        """Begin, in the worker."""
        self._rival = Rival.told()
        self._rival.begin_work()

    def decode_request(self, request):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 - see above
        """Return the frame."""
        return self._rival.frame(request[FIELD].file.read())

    def batch(self, inputs: list[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
        """Leave the frames where they are: the model looks at three bytes of each."""
        return inputs

    def predict(self, x: list[npt.NDArray[Any]]) -> list[list[float]]:
        """Run one batch."""
        return [first_value(frame) for frame in x]

    def unbatch(self, output: list[list[float]]) -> list[list[float]]:
        """Return the answers."""
        return output

    def encode_response(self, output):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 - see above
        """Return what becomes JSON."""
        return {"value": output}


def main(port: int) -> None:
    """Serve until SIGTERM."""
    rival = Rival.told()
    api = FirstValue(max_batch_size=rival.most, batch_timeout=rival.wait_ms / 1e3)
    server = litserve.LitServer(api, accelerator="cpu", devices=1, workers_per_device=1, fast_queue=True)
    server.run(
        host="127.0.0.1",
        port=port,
        num_api_servers=1,
        log_level="warning",
        generate_client_file=False,
        access_log=False,
        loop="uvloop",
        http="httptools",
    )


if __name__ == "__main__":
    main(int(sys.argv[1]))
