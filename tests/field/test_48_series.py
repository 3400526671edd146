"""Report 48: whatever callers write into paths, names and ids, the number of series stays what it is."""

import random
import string
import time
from urllib.parse import quote

from prometheus_client.parser import text_string_to_metric_families

from tests.api.served import FRAME, Served, wait_until
from tests.field.support import MB, rss_bytes
from tests.runtime_support import shm_files

ODD = ['"', "\\", "\n", "{", "}", "é", "\u202e", "%", ",", "="]


def text(randomly, most=40):
    pieces = [*string.ascii_letters, *string.digits, "_", "-", "/", ".", *ODD]
    return "".join(randomly.choices(pieces, k=randomly.randint(1, most)))


def scrape(served):
    """Return the names and labels of all series; it parses, and does not take long."""
    best_s, body = 1.0, ""
    for _ in range(3):  # the best of three: others use this machine too
        began = time.monotonic()
        body = served.http.get("/metrics").text
        best_s = min(best_s, time.monotonic() - began)
    assert best_s < 0.2
    return {
        (sample.name, *sorted(sample.labels.items()))
        for family in text_string_to_metric_families(body)
        for sample in family.samples
    }


def one_of_each(served):
    """Every kind of call once, so that what comes later adds no series of its own."""
    with served.stream(name="one") as stream:
        served.http.post(stream["frames_url"], content=FRAME)
        served.http.post(stream["frames_url"], content=FRAME[1:])
    for method in ("GET", "POST", "PUT", "BREW"):
        served.http.request(method, "/no/such/path")
        served.http.request(method, "/v1/streams/no/frames")
        served.http.request(method, "/v1/streams/no")
    calls(served, "no", "no", "no")
    wait_until(lambda: not served.http.get("/v1/streams").json()["streams"], "streams are left")


def calls(served, model, request_id, name):
    """The calls that take names from their callers."""
    path = quote(model, safe="")
    served.http.get(f"/v2/models/{path}")
    served.http.get(f"/v2/models/{path}/versions/{path}/ready")
    infer = {"id": request_id, "inputs": [{"name": name, "shape": [1], "datatype": "UINT8", "data": [1]}]}
    served.http.post(f"/v2/models/{path}/infer", json=infer)
    served.http.post("/v2/models/echo/infer", json=infer, headers={"x-request-id": quote(request_id)})
    served.http.post(f"/v1/models/{path}/load")
    served.register(model=model, name=name)
    served.http.get(f"/v1/streams/{path}/results", params={"after": name})


def test_callers_make_no_series(length):
    randomly = random.Random(48)
    files = shm_files()
    with Served(limits={"closed_streams_kept": 16}) as served:
        one_of_each(served)
        before, rss = scrape(served), rss_bytes()
        for _ in range(length(300, 5_000)):
            method = randomly.choice(["GET", "POST", "DELETE", "PATCH", "OPTIONS", "BREW"])
            served.http.request(method, "/" + quote(text(randomly)), headers={"x-request-id": quote(text(randomly))})
        for _ in range(length(60, 1_000)):
            calls(served, text(randomly), text(randomly, 4_000), text(randomly))
        for number in range(length(150, 1_000)):
            name = "".join(c for c in text(randomly) if c.isprintable())[:100]
            answer = served.register(name=name)
            assert answer.status_code == 201, answer.text
            stream = answer.json()
            if number % 10 == 0:
                served.http.post(stream["frames_url"], content=FRAME)
            assert stream["stream_id"] in served.http.get("/metrics").text or number % 50
            assert served.http.delete(f"/v1/streams/{stream['stream_id']}").status_code == 200
        wait_until(lambda: not served.http.get("/v1/streams").json()["streams"], "streams are left")
        after = scrape(served)
        new = after - before
        assert len(new) < 16, sorted(new)
        assert not [series for series in after if any(name == "stream_id" for name, _ in series[1:])]
        assert rss_bytes() - rss < 64 * MB
        assert len(shm_files()) == len(files) + 1
    assert shm_files() == files
