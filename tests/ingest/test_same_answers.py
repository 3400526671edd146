"""The same requests, good and bad, to a gateway with ingest processes and to one without: the same answers.

Byte for byte, but for what is another one's in any two runs: ids of streams, the date, and how long things took.
"""

import re
import socket

import pytest
from websockets.exceptions import InvalidStatus

from tests.api.served import FRAME, Served
from tests.api.sockets import BINARY, TEXT, Bare, socket_of

_TIMES = re.compile(rb'("(?:latency|queue|execute|observed_worst_latency|last_used_ago|next_use_in)_ms"):[0-9.e+-]+')
_TEST_TIME = re.compile(rb'("test_ms"):[0-9.e+-]+')


@pytest.fixture(scope="module")
def both():
    """A gateway without ingest processes and one with two, and the ids of their streams, by name."""
    running = [Served(server={"ingest_workers": workers}).start() for workers in (0, 2)]
    yield [(served, _streams(served)) for served in running]
    for served in running:
        served.stop()


def _streams(served):
    ids = {}
    for name, fields in {"OPEN": {}, "SHUT": {}, "DONE": {"frames": 1}}.items():
        ids[name] = served.register(name=name, period_ms=2_000, deadline_ms=2_000, **fields).json()["stream_id"]
    served.http.delete(f"/v1/streams/{ids['SHUT']}")
    served.http.post(f"/v1/streams/{ids['DONE']}/frames", content=FRAME)
    return ids


def request(method, path, body=b"", *, version="1.1", **headers):
    lines = [f"{method} {path} HTTP/{version}", "Host: gateway", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    if body is not None and "transfer_encoding" not in headers and (body or method == "POST"):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + (body or b"")


def frames(body=FRAME, query="", stream="OPEN", **options):
    return request("POST", f"/v1/streams/{stream}/frames{query}", body, **options)


def chunked(*pieces):
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in (*pieces, b""))


def register(body, media_type="application/json", **headers):
    return request("POST", "/v1/streams", body, content_type=media_type, **headers)


CHUNKED = {"transfer_encoding": "chunked"}
GOOD = b'{"model":"echo","shape":[8,8,3],"period_ms":500,"deadline_ms":900,"name":"new"}'
INFER = (
    b'{"id":"7","inputs":[{"name":"frame","shape":[1,8,8,3],"datatype":"UINT8","data":['
    + b",".join([b"7"] * len(FRAME))
    + b"]}]}"
)
REQUESTS = {
    "frame": frames(),
    "three frames": frames(FRAME * 3),
    "label": frames(framegate_timestamp_ms="12.5"),
    "binary": frames(accept="application/octet-stream"),
    "chunked frame": frames(chunked(FRAME[:50], FRAME[50:]), **CHUNKED),
    "asks first": frames(expect="100-continue"),
    "HTTP 1.0": frames(version="1.0"),
    "not waiting": frames(FRAME * 2, "?wait=false"),
    "waiting, said so": frames(query="?wait=1"),
    "wrong query": frames(query="?wait=perhaps"),
    "other query": frames(query="?frames=1"),
    "no body": frames(b""),
    "too short": frames(FRAME[:-1]),
    "too short, not waiting": frames(FRAME[:-1], "?wait=false"),
    "too short, chunked": frames(chunked(FRAME[:-1]), **CHUNKED),
    "too many": frames(FRAME * 1_025),
    "wrong label": frames(framegate_timestamp_ms="noon"),
    "unknown stream": frames(stream="none"),
    "no stream's id": frames(stream="a%20b"),
    "closed stream": frames(stream="SHUT"),
    "closed stream, wrong size": frames(b"x", stream="SHUT"),
    "closed stream, not waiting": frames(FRAME, "?wait=false", stream="SHUT"),
    "finished stream": frames(stream="DONE"),
    "not a post": request("GET", "/v1/streams/OPEN/frames"),
    "head of frames": request("HEAD", "/v1/streams/OPEN/frames"),
    "announces too much": b"POST /v1/streams/OPEN/frames HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n",
    "no upgrade": request("GET", "/v1/streams/OPEN/ws"),
    "results": request("GET", "/v1/streams/OPEN/results?after=-1&timeout_ms=0"),
    "results in binary": request(
        "GET", "/v1/streams/OPEN/results?after=2&timeout_ms=0", accept="application/octet-stream"
    ),
    "results of a finished one": request("GET", "/v1/streams/DONE/results?after=0"),
    "results of nobody": request("GET", "/v1/streams/none/results"),
    "results, wrong query": request("GET", "/v1/streams/OPEN/results?after=x"),
    "stream": request("GET", "/v1/streams/OPEN"),
    "streams": request("GET", "/v1/streams"),
    "streams in HTTP 1.0": request("GET", "/v1/streams", version="1.0"),
    "closing twice": request("DELETE", "/v1/streams/SHUT"),
    "registration": register(GOOD),
    "registration, chunked": register(chunked(GOOD), **CHUNKED),
    "registration, asked first": register(GOOD, expect="100-continue"),
    "unknown field": register(GOOD.replace(b"name", b"nam")),
    "unknown model": register(GOOD.replace(b"echo", b"ecco")),
    "no JSON": register(b"{"),
    "empty": register(b""),
    "no media type": register(GOOD, "text/plain"),
    "too much JSON": register(b" " * (65 << 10)),
    "too much JSON, chunked": register(chunked(*[b" " * (8 << 10)] * 10), **CHUNKED),
    "too much JSON, asked first": register(b" " * (65 << 10), expect="100-continue"),
    "would be admitted": request(
        "POST", "/v1/admission/check", GOOD.replace(b"500", b"1"), content_type="application/json"
    ),
    "profile": request("GET", "/v1/profile"),
    "models": request("GET", "/v1/models"),
    "OpenAPI": request("GET", "/openapi.json"),
    "docs": request("GET", "/docs"),
    "live": request("GET", "/v2/health/live"),
    "head of ready": request("HEAD", "/v2/health/ready"),
    "server": request("GET", "/v2"),
    "metadata": request("GET", "/v2/models/echo"),
    "inference": request("POST", "/v2/models/echo/infer", INFER, content_type="application/json"),
    "bad inference": request("POST", "/v2/models/echo/infer", INFER[:-1]),
    "inference of nothing": request("POST", "/v2/models/none/infer", INFER),
    "no path": request("GET", "/nothing?at=all"),
    "head of no path": request("HEAD", "/nothing"),
    "no method": request("PUT", "/v1/streams", b"{}"),
    "options": request("OPTIONS", "/v1/streams"),
    "encoded path": request("GET", "/v1/%73treams/OPEN"),
    "no HTTP": b"HELLO\r\n\r\n",
    "two lengths": b"POST /v1/streams HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "large head": b"GET / HTTP/1.1\r\nHost: x\r\nA: %b\r\n\r\n" % (b"a" * (65 << 10)),
}


def exchange(served, ids, data):
    """Send it, and return all that comes, until the server closes, with what may differ made equal."""
    for name, stream_id in ids.items():
        data = data.replace(f"/{name}".encode(), f"/{stream_id}".encode())
    with served.connect() as peer:
        peer.sendall(data)
        if b"99999999" in data:
            peer.shutdown(socket.SHUT_WR)
        received = b""
        while part := peer.recv(1 << 16):
            received += part
    return comparable(received, ids)


def comparable(received, ids):
    head, separator, body = received.partition(b"\r\n\r\n")
    if head.startswith(b"HTTP/1.1 100"):
        rest = comparable(body, ids)
        return (head, *rest)
    if b"transfer-encoding: chunked" in head:
        body = dechunked(body)
    for name, stream_id in ids.items():
        head, body = (part.replace(stream_id.encode(), name.encode()) for part in (head, body))
    head = re.sub(rb"\r\ndate: [^\r]+", b"", head)
    head = re.sub(rb"\r\nlocation: /v1/streams/\w+", b"\r\nlocation: new", head)
    body = _TEST_TIME.sub(rb"\1:0", _TIMES.sub(rb"\1:0", body))
    body = re.sub(rb"[0-9a-f]{16}", b"id", body)
    # Lengths are those of bodies in which times were written with more digits or fewer, as long as they are right.
    head = re.sub(rb"content-length: \d+", b"content-length: N", head)
    return head, separator, body


def dechunked(body):
    whole = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        whole += body[: int(size, 16)]
        body = body[int(size, 16) + 2 :]
    return whole


@pytest.mark.parametrize("name", REQUESTS)
def test_the_answer_is_the_same(both, name):
    (alone, ids), (divided, other_ids) = both
    expected = exchange(alone, ids, REQUESTS[name])
    assert exchange(divided, other_ids, REQUESTS[name]) == expected
    assert expected[0].startswith(b"HTTP/1.1 ")


@pytest.mark.parametrize(("stream", "status"), [("none", 404), ("SHUT", 410), ("DONE", 409), ("a b", 404)])
def test_a_refused_handshake_is_the_same(both, stream, status):
    answers = []
    for served, ids in both:
        path = f"/v1/streams/{ids.get(stream, stream).replace(' ', '%20')}/ws"
        with pytest.raises(InvalidStatus) as refused, socket_of(served, path):
            pass
        response = refused.value.response
        body = response.body.replace(ids.get(stream, "-").encode(), stream.encode())
        headers = {name.lower(): value for name, value in response.headers.raw_items() if name.lower() != "date"}
        headers["content-length"] = len(body)
        answers.append((response.status_code, headers, body))
    assert answers[0] == answers[1]
    assert answers[0][0] == status


def test_messages_of_a_socket_are_answered_alike(both):
    said = []
    for served, ids in both:
        with Bare(served, {"stream_id": ids["OPEN"]}) as bare:
            for opcode, payload in (
                (BINARY, FRAME),
                (BINARY, FRAME[:-1]),
                (BINARY, b""),
                (TEXT, b'{"timestamp_ms": 4}'),
                (BINARY, FRAME * 2),
                (TEXT, b"what"),
                (BINARY, FRAME + b"x"),
            ):
                bare.send(payload, opcode)
            texts = [bare.read() for _ in range(7)]
        said.append(sorted(comparable(b"\r\n\r\n" + text, ids)[2] for opcode, text in texts if opcode == TEXT))
    assert len(said[0]) == 7
    assert re.sub(rb'"seq":\d+', b"", b"".join(said[0])) == re.sub(rb'"seq":\d+', b"", b"".join(said[1]))
