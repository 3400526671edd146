"""The OpenAPI document says what the gateway does, and the reference says what the document does."""

import asyncio
import re
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from gateway.api import docs_page
from gateway.api.app import create_app
from gateway.runtime.gateway import Gateway
from gateway.settings import Settings
from tests.api.served import profile
from tests.api.test_problems import all_errors

REFERENCE = Path(__file__).parents[2] / "docs/api.md"
#: Errors that end the command instead of a call.
NOT_OVER_HTTP = {
    "profile_missing",
    "address_unavailable",
    "embedded_triton",
    "zoo",
    "arena_not_locked",
    "ingest_failed",
}


def make_app():
    settings = Settings()
    return create_app(Gateway(settings, profile()), settings)


@pytest.fixture(scope="module")
def document():
    return make_app().openapi()


def operations(document):
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield f"{method.upper()} {path}", operation


def references(node):
    if isinstance(node, dict):
        if "$ref" in node:
            yield node["$ref"]
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def test_all_calls_are_there(document):
    assert {name for name, _ in operations(document)} == {
        "POST /v1/streams",
        "GET /v1/streams",
        "GET /v1/streams/{stream_id}",
        "DELETE /v1/streams/{stream_id}",
        "POST /v1/streams/{stream_id}/frames",
        "GET /v1/streams/{stream_id}/results",
        "GET /v1/streams/{stream_id}/events",
        "POST /v1/admission/check",
        "GET /v1/models",
        "POST /v1/models/{model}/load",
        "POST /v1/models/{model}/unload",
        "POST /v1/models/{model}/pin",
        "GET /v1/profile",
        "GET /v2/health/live",
        "GET /v2/health/ready",
        "GET /v2",
        "GET /v2/models/stats",
        *(
            f"GET /v2/models/{model}{what}"
            for model in ("{model}", "{model}/versions/{version}")
            for what in ("", "/ready", "/config", "/stats")
        ),
        "POST /v2/models/{model}/infer",
        "POST /v2/models/{model}/versions/{version}/infer",
        "GET /metrics",
    }


def test_every_reference_leads_somewhere(document):
    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    used = set(references(document))
    assert used <= known
    assert {"#/components/schemas/Problem", "#/components/schemas/StreamRequest"} <= used


def test_it_is_a_valid_document(document):
    assert re.fullmatch(r"3\.1\.\d", document["openapi"])
    assert document["info"]["title"] == "Framegate"
    ids = [operation["operationId"] for _, operation in operations(document)]
    assert len(ids) == len(set(ids))
    for name, operation in operations(document):
        assert any(status.startswith("2") for status in operation["responses"]), name
        declared = {p["name"] for p in operation.get("parameters", []) if p["in"] == "path"}
        assert declared == set(re.findall(r"{(\w+)}", name)), name
        for status, answer in operation["responses"].items():
            assert re.fullmatch(r"[2-5]\d\d", status)
            assert answer["description"]


def test_every_error_answer_is_a_problem(document):
    for name, operation in operations(document):
        for status, answer in operation["responses"].items():
            if status[0] in "45":
                form = "application/json" if "/v2" in name else "application/problem+json"
                assert set(answer["content"]) == {form}, (name, status)
    assert not {"HTTPValidationError", "ValidationError"} & document["components"]["schemas"].keys()


def test_frames_are_documented(document):
    call = document["paths"]["/v1/streams/{stream_id}/frames"]["post"]
    assert set(call["requestBody"]["content"]) == {"application/octet-stream"}
    assert set(call["responses"]) == {
        "200",
        "202",
        "400",
        "404",
        "408",
        "409",
        "410",
        "413",
        "422",
        "429",
        "502",
        "503",
        "504",
    }
    assert "frame_size_mismatch" in call["responses"]["400"]["description"]


def test_results_are_documented_in_both_forms(document):
    paths = document["paths"]
    post, poll = paths["/v1/streams/{stream_id}/frames"]["post"], paths["/v1/streams/{stream_id}/results"]["get"]
    for answer, model in ((post["responses"]["200"], "FrameOutcomes"), (poll["responses"]["200"], "ResultsPage")):
        assert set(answer["content"]) == {"application/json", "application/octet-stream"}
        assert answer["content"]["application/json"]["schema"] == {"$ref": f"#/components/schemas/{model}"}
        assert "Inference-Header-Content-Length" in answer["headers"]


def test_the_registration_is_documented_strictly(document):
    schema = document["components"]["schemas"]["StreamRequest"]
    assert schema["additionalProperties"] is False
    assert set(schema["required"]) == {"model", "shape", "deadline_ms"}
    answers = document["paths"]["/v1/streams"]["post"]["responses"]
    assert "`not_schedulable`" in answers["409"]["description"]
    assert "`not_profiled`" in answers["409"]["description"]


def test_making_the_document_twice_gives_the_same():
    app = make_app()
    assert app.openapi() is app.openapi()


def test_the_reference_lists_every_code_with_its_status():
    text = REFERENCE.read_text()
    table = dict(re.findall(r"^\| `(\w+)` \| (\d{3}) \|", text, re.MULTILINE))
    expected = {error.code: str(error.status) for error in all_errors() if error.code not in NOT_OVER_HTTP}
    assert table == expected
    for code in NOT_OVER_HTTP:
        assert f"`{code}`" in text


def test_the_reference_shows_every_call(document):
    text = REFERENCE.read_text()
    for name, _ in operations(document):
        method, path = name.split()
        path = path.replace("{stream_id}", "{id}")
        assert f"{method} {path}" in text or f"`{path}`" in text, name


def test_every_metric_is_explained(document):
    text = (REFERENCE.parent / "metrics.md").read_text()
    explained = set(re.findall(r"`(framegate_\w+)`", text))
    source = "".join(path.read_text() for path in (REFERENCE.parents[1] / "gateway/telemetry").glob("*.py"))
    families = set(re.findall(r'"(framegate_\w+)"', source)) | {
        f"framegate_{name}" for name in re.findall(r'_(?:counter|histogram)\(\s*"(\w+)"', source)
    }
    missing = {name for name in families if not {name, f"{name}_total", f"{name}_info"} & explained}
    assert len(families) > 15
    assert not missing


class Assets:
    """What `fastapi-offline` installs."""

    def __init__(self, folder):
        (folder / "swagger-ui-bundle.js").write_text("var swagger;")
        (folder / "swagger-ui.css").write_text("body {}")
        self.folder = folder


def get(assets, path):
    """Return the text at `path` of an application with nothing but the page."""
    app = FastAPI(docs_url=None, redoc_url=None)
    docs_page.add(app, assets)

    async def fetched():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x") as client:
            return (await client.get(path)).text

    return asyncio.run(fetched())


def test_the_page_needs_no_internet_when_the_assets_are_installed(tmp_path):
    assets = Assets(tmp_path).folder
    html = get(assets, "/docs")
    links = re.findall(r'(?:src|href)="([^"]+)"', html)
    assert links
    assert not [link for link in links if link.startswith("http")]
    assert get(assets, "/docs/assets/swagger-ui-bundle.js") == "var swagger;"


def test_without_them_the_page_is_fastapis_own():
    assert "cdn.jsdelivr.net" in get(None, "/docs")
