"""The live table: readable on 80 columns, complete once a camera is refused."""

from __future__ import annotations

import io
from types import SimpleNamespace

from rich.console import Console

from gateway.client.problems import NotSchedulable
from gateway.client.stats import Stats
from gateway.client.types import Admission, Evidence, FrameResult
from gateway.demo.command import closing_lines
from gateway.demo.plan import cameras
from gateway.demo.progress import Progress
from gateway.demo.show import Refusal, Show
from gateway.demo.summary import advice, describe_refusal
from gateway.demo.table import render

EVIDENCE = {"test": "exact", "phase": 2, "reason": "deadline_miss", "utilization": 0.97}
MISS = {
    "model": "centerface",
    "shape": [270, 480, 3],
    "streams": ["a", "this"],
    "names": ["bunny", "bunny-2"],
    "frames": 2,
    "release_ms": 1.0,
    "deadline_ms": 200.0,
    "finish_ms": 222.5,
    "late_ms": 22.5,
}


def refusal():
    document = {
        "code": "not_schedulable",
        "detail": "it would be late",
        "evidence": {**EVIDENCE, "first_miss": MISS},
        "counter_offers": [{"field": "shape", "value": [144, 176, 3]}, {"field": "deadline_ms", "value": 148.7}],
    }
    alone = Admission(True, Evidence.from_json({"utilization": 0.5, "worst_latency_ms": 70.0}))
    return Refusal(cameras()[3], alone, NotSchedulable(409, document))


def show():
    filled = Show()
    for plan in cameras():
        stats = Stats()
        stats.sent = 1234
        for _ in range(1234):
            stats.add(FrameResult(0, "met", latency_ms=123.4, batch=2))
        filled.cameras.append(
            SimpleNamespace(plan=plan, camera=SimpleNamespace(stats=stats), fps=10.0, frames_with_face=1)
        )
    return filled


def printed(renderable):
    """As the demo prints it: on a console that leaves wrapping to the terminal."""
    console = Console(width=80, file=io.StringIO(), soft_wrap=True)
    console.print(renderable)
    text = console.file.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    return text


def test_the_table_fits_80_columns_uncut():
    text = printed(render(show()))
    assert "…" not in text
    assert "carphone-10" in text
    assert "144x176" in text
    assert "123.4" in text


def test_a_refusal_is_told_with_its_first_miss_and_offers():
    filled = show()
    filled.refusal = refusal()
    text = " ".join(printed(render(filled)).split())
    assert "an empty device would carry it" in text
    assert "22.5 ms late (of bunny, bunny-2)" in text
    assert "would have been admitted at that moment: shape 144x176x3" in text


def test_the_summary_of_a_refusal_is_plain_data():
    document = describe_refusal(refusal())
    assert document["first_miss"]["names"] == ("bunny", "bunny-2")
    assert (document["reason"], document["alone"]["admitted"], document["alone"]["worst_latency_ms"]) == (
        "deadline_miss",
        True,
        70.0,
    )
    assert document["counter_offers"][0] == {"field": "shape", "value": [144, 176, 3]}


def test_a_job_in_a_hundred_may_take_longer_than_profiled():
    assert advice(100, 1) == advice(0, 0) == []
    assert advice(100, 2)


def test_progress_is_wrapped_at_80_columns_and_what_belongs_together_is_indented():
    console = Console(width=80, file=io.StringIO(), soft_wrap=True)
    Progress(console).say("bunny-2 refused: " + "a job would end after its deadline " * 6)
    lines = console.file.getvalue().splitlines()
    assert len(lines) > 2
    assert max(map(len, lines)) <= 80
    assert "s] bunny-2 refused" in lines[0]
    assert all(line.startswith(" " * 11) for line in lines[1:])


def test_the_closing_words_fit_80_columns(tmp_path):
    document = {
        "frames": 123456,
        "streams_admitted": 4,
        "seconds": 3600.0,
        "met": 123456,
        "missed": 1000,
        "expired": 1000,
        "failed": 1000,
        "books": "balanced",
        "p50_latency_ms": 123.456,
        "p99_latency_ms": 1234.567,
        "mean_batch": 1.234,
        "jobs_by_batch": {"1": 100000, "2": 10000, "3": 1000},
        "faces_found": 1.0,
        "jobs": 100000,
        "jobs_over_profile_share": 0.27,
        "advice": advice(100, 27),
        "max_abs_error": 1e-5,
        "compared": {"frames": 400, "batched": 200, "max_abs_error": 1.5e-5},
    }
    lines = closing_lines(document, "demo_output")
    assert max(map(len, lines)) <= 80
    assert "the books balance" in "\n".join(lines)
    assert "  27.0% of 100000 jobs took longer than their profiled time" in lines
    assert "profile again, on a quiet machine" in "\n".join(lines)
    assert "demo_output/annotated.png" in "\n".join(lines)
