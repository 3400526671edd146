"""At run time a light dataclass is told from a frozen one by nothing but its price, and that it can be changed."""

import copy
import pickle
from dataclasses import FrozenInstanceError, asdict, dataclass, fields, replace

import pytest

from gateway.core import actions, events
from gateway.core.light_dataclass import light_dataclass
from gateway.core.types import Category, Frame, Job


@dataclass(frozen=True, slots=True)
class Frozen:
    name: str
    size: tuple[int, ...] = (1, 2)


@light_dataclass(frozen=True, slots=True)
class Light:
    name: str
    size: tuple[int, ...] = (1, 2)


JOB = Job(1, Category("m", "1", (4, 4, 3)), (Frame("s", 0, 1, 2, 3), Frame("s", 1, 1, 2, 3)), 5, 6, 7)


def test_it_is_made_read_and_compared_like_a_frozen_one():
    for a, b in ((Light("a"), Frozen("a")), (Light("a", (3,)), Frozen("a", (3,)))):
        assert repr(a) == repr(b).replace("Frozen", "Light")
        assert (asdict(a), hash(a)) == (asdict(b), hash(b))
        assert not hasattr(a, "__dict__")
    assert Light("a") == Light("a")
    assert Light("a") != Light("a", (3,))
    assert Light("a") != Frozen("a")
    assert len({Light("a"), Light("a"), Light("b")}) == 2


def test_only_the_type_checker_keeps_it_from_being_changed():
    with pytest.raises(FrozenInstanceError):
        Frozen("a").name = "b"
    light = Light("a")
    light.name = "b"
    assert light == Light("b")
    with pytest.raises(AttributeError):
        light.other = 1


def test_what_can_change_is_no_light_dataclass():
    with pytest.raises(AssertionError, match="not frozen"):
        light_dataclass(frozen=False, slots=True)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda job: pickle.loads(pickle.dumps(job)), replace])
def test_a_copy_is_equal(copied):
    assert copied(JOB) == JOB
    assert copied(JOB) is not JOB


def test_replacing_a_field_leaves_the_original():
    assert replace(JOB, id=2).id == 2
    assert JOB.id == 1


def test_all_that_goes_in_and_out_of_the_engine_is_light():
    """Else one kind of event costs five times what the others do, for no reason that anybody could see."""
    kinds = [
        kind
        for module in (actions, events)
        for kind in vars(module).values()
        if isinstance(kind, type) and kind.__module__ == module.__name__
    ]
    assert len(kinds) > 30
    assert [
        kind for kind in kinds if kind.__dataclass_params__.frozen or not kind.__dataclass_params__.unsafe_hash
    ] == []
    assert all(fields(kind) or kind is events.Tick for kind in kinds)
