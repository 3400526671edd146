"""How often a frame's bytes are copied in user space on their way to the model, by the code of each server.

Reading from and writing to a socket is not counted: the kernel copies there, in every arm. Where a server's code was
not followed to the end it is "at least". A body of up to 32 kB is copied once more by our HTTP parser, and a WebSocket
message that does not come in one piece once more by uvloop. What can be measured of it is: the gateway counts the
copies that close holes (`second_copies` in the figures, 0 unless frames are cancelled) and batches that found no place
in its arena.
"""

_UVLOOP = "uvloop's buffer to bytes"
_HTTPTOOLS = "httptools' piece of the body"

COPIES: dict[str, tuple[str, ...]] = {
    "ceiling": (_UVLOOP, _HTTPTOOLS),
    "http": (_UVLOOP, "piece to the frame's slot in shared memory", "Triton to the memory of its backend"),
    "ws": ("unmasked to the frame's slot in shared memory", "Triton to the memory of its backend"),
    "triton": ("Triton to the memory of its backend",),
    "litserve": (
        _UVLOOP,
        _HTTPTOOLS,
        "the form's parser to a file in memory",
        "at least two to write it into a pickle",
        "at least two in the process of the queue",
        "the worker's pickle to the file",
        "the file to bytes",
    ),
    "mosec": ("at least one in the front end, from pieces to a body", "the worker's buffer to bytes"),
}
