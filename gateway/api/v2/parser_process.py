"""The process that parses large bodies of `/v2`: they come in on stdin, requests out on stdout, gone at end of file."""

from __future__ import annotations

import os
import pickle
import signal
import sys
from dataclasses import replace
from typing import BinaryIO

#: Frames go first; but a caller waits for this.
_NICENESS = 10


def main(source: BinaryIO, target: BinaryIO) -> None:
    """Answer until `source` ends, which it does when the gateway goes, however it goes."""
    # A terminal sends Ctrl-C to the whole process group. First of all: the imports take longer than all before them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    from gateway.api.v2.parsing import HEAD, Failure
    from gateway.api.v2.request import InferRequest, parse
    from gateway.errors import FramegateError

    os.nice(_NICENESS)
    while len(head := source.read(HEAD.size)) == HEAD.size:
        size, json_bytes, most_elements = HEAD.unpack(head)
        answer: InferRequest | Failure
        try:
            answer = parse(source.read(size), json_bytes, most_elements=most_elements)
            # Views of the body cannot be sent.
            answer.inputs = tuple(replace(tensor, data=bytes(tensor.data)) for tensor in answer.inputs)
        except FramegateError as error:
            answer = (type(error).__name__, error.detail, dict(error.members))
        pickle.dump(answer, target, pickle.HIGHEST_PROTOCOL)
        target.flush()


if __name__ == "__main__":
    main(sys.stdin.buffer, sys.stdout.buffer)
