import json

import pytest

from gateway import errors
from gateway.api.problems import MAX_LISTED_ERRORS, describe, document, problem_response, validation_failed
from gateway.errors import ArenaFull, FramegateError, FrameSizeMismatch, NotProfiled, NotSchedulable


def all_errors(base=FramegateError):
    yield base
    for derived in base.__subclasses__():
        yield from all_errors(derived)


def test_codes_are_unique_and_each_class_is_complete():
    codes = [error.code for error in all_errors()]
    assert len(codes) == len(set(codes)) > 20
    for error in all_errors():
        assert 400 <= error.status < 600
        assert error.title
        assert not error.title.endswith(".")
        assert error.__doc__


def test_a_problem_document_has_the_evidence_as_members():
    error = FrameSizeMismatch("too short", expected_bytes=10, received_bytes=9)
    assert document(error) == {
        "type": "urn:framegate:problem:frame_size_mismatch",
        "title": "The body is not a whole number of frames",
        "status": 400,
        "code": "frame_size_mismatch",
        "detail": "too short",
        "expected_bytes": 10,
        "received_bytes": 9,
    }


def test_an_error_without_detail_says_its_title():
    assert document(NotProfiled())["detail"] == NotProfiled.title
    assert str(NotProfiled()) == NotProfiled.title


@pytest.mark.parametrize("name", sorted(FramegateError.RESERVED))
def test_members_cannot_hide_the_documents_own(name):
    with pytest.raises(TypeError, match=name):
        NotSchedulable("no", **{name: 1})


def test_retry_after_is_in_whole_seconds_rounded_up():
    response = problem_response(ArenaFull(retry_after_s=0.2))
    assert response.headers["retry-after"] == "1"
    assert response.headers["content-type"] == "application/problem+json"
    assert "retry-after" not in problem_response(ArenaFull()).headers


def test_members_that_json_does_not_know_do_not_break_the_answer():
    response = problem_response(NotSchedulable("no", worst=float("nan"), path=errors))
    assert json.loads(response.body)["worst"] is None


def test_faults_are_listed_without_the_values_and_bounded():
    faults = [{"loc": ("body", "k" * 1000), "msg": "bad", "type": "t", "input": float("nan")}] * 100
    error = validation_failed(faults)
    assert len(error.members["errors"]) == MAX_LISTED_ERRORS
    assert len(problem_response(error).body) < 8_000
    assert "input" not in error.members["errors"][0]


def test_errors_of_one_status_are_described_together():
    described = describe(NotProfiled, NotSchedulable, ArenaFull)
    assert set(described) == {409, 503}
    assert "`not_profiled`" in described[409]["description"]
    assert "`not_schedulable`" in described[409]["description"]
