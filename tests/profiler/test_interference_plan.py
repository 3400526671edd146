"""What the concurrency study measures, and in which order."""

import pytest

from profiler.interference_plan import Load, Point, StudyPlan, parse_sizes


def test_every_point_comes_once_and_instances_are_only_added() -> None:
    points = StudyPlan(("a", "b", "c"), instances=3, total=6).points()
    assert len(points) == len(set(points))
    assert {(p.load.model, p.beside.model) for p in points if p.beside} == {
        (a, b) for a in "abc" for b in "abc" if a != b
    }
    alone = [p.load for p in points if p.beside is None]
    for model in "abc":
        own = [(load.instances, load.batch) for load in alone if load.model == model]
        assert own == [(1, 1), (1, 6), (2, 1), (2, 3), (3, 1), (3, 2), (6, 1)]
    assert [load.model for load in alone] == sorted(load.model for load in alone)
    assert points.index(Point(Load("a"))) > max(points.index(p) for p in points if p.beside)


@pytest.mark.parametrize(
    ("total", "splits"),
    [(8, ((8, 1), (4, 2), (2, 4), (1, 8))), (4, ((4, 1), (2, 2), (1, 4))), (5, ((5, 1), (1, 5))), (0, ())],
)
def test_splits_are_all_ways_to_the_same_total(total: int, splits: tuple[tuple[int, int], ...]) -> None:
    assert StudyPlan(("a",), total=total).splits() == splits


def test_parts_can_be_left_out() -> None:
    assert [str(p) for p in StudyPlan(("a", "b"), instances=2, total=0, pairs=False).points()] == [
        *("a 1x1", "a 2x1", "b 1x1", "b 2x1")
    ]
    assert not any(p.beside for p in StudyPlan(("a",)).points()), "a pair of one model"
    assert str(StudyPlan(("a", "b"), instances=1, total=0).points()[0]) == "a 1x1 beside b 1x1"


def test_sizes_are_for_all_models_or_for_one() -> None:
    assert parse_sizes(["224x224", "centerface=160x192", "x=3x8X8"]) == (
        (224, 224),
        {"centerface": (160, 192), "x": (3, 8, 8)},
    )
    assert parse_sizes([]) == (None, {})


@pytest.mark.parametrize("texts", [["0x5"], ["axb"], ["m="], ["m=-1x4"], [""], ["1x1", "2x2"]])
def test_other_sizes_are_refused(texts: list[str]) -> None:
    with pytest.raises(ValueError, match="shape"):
        parse_sizes(texts)
