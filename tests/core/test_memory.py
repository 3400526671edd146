"""The account of the memory budget, who gives way for it, and execution times beside loads."""

import pytest

from gateway.core.actions import DropFrames
from gateway.core.config import EngineConfig, Replacement, ResidencyConfig
from gateway.core.events import MemoryMeasured, ModelLoaded, RequestUnload, WorkerBack, WorkerLost
from gateway.core.memory import MemoryBooks, planned
from gateway.core.model import Model
from gateway.core.profile import ModelEntry, Profile
from gateway.core.replacement import in_order, just_enough
from gateway.core.types import LOCAL_WORKER, ModelState
from gateway.core.view import MemoryView
from tests.core.factories import MS, every, make_category, make_profile
from tests.core.model_drive import Models, calls, refusals, sized


def books(budget=10, **options):
    return MemoryBooks(ResidencyConfig(budget_bytes=budget, **options))


class TestBooks:
    def test_what_is_loading_or_going_is_held(self):
        account = books()
        account.hold("a", 6)
        assert (account.held, account.staying) == (6, 6)
        account.leave("a")
        assert (account.held, account.staying) == (6, 0)
        account.free("a")
        account.free("a")
        assert account.held == account.staying == 0

    def test_room_is_there_when_it_is_free(self):
        account = books(10)
        account.hold("a", 6)
        assert account.fits(4)
        assert not account.fits(5)
        assert not account.fits(4, beside=1)
        account.leave("a")
        assert not account.fits(5), "it has not gone"
        assert account.short_of(5) == 0, "but it is going"
        account.stay("a")
        assert account.short_of(5) == 1

    def test_headroom_is_for_what_is_going_alone(self):
        account = books(10, headroom_bytes=3)
        account.hold("a", 8)
        assert not account.fits(5)
        account.leave("a")
        assert account.fits(5)
        assert not account.fits(6)

    def test_loaded_anew_it_is_held_twice(self):
        account = books()
        account.hold("a", 4)
        account.hold_twice("a", 5)
        assert account.held == account.held_by("a") == 9
        account.hold_once("a")
        assert account.held == 4

    def test_nothing_is_held_twice_by_mistake(self):
        account = books()
        account.hold("a", 4)
        with pytest.raises(AssertionError, match="holds memory already"):
            account.hold("a", 4)

    def test_models_of_the_swap_region_hold_nothing_besides(self):
        account = books(20)
        account.hold("pinned", 6)
        account.region, account.region_models = 5, frozenset("ab")
        assert (account.held, account.room) == (11, 15)
        account.hold("a", 5)
        assert account.held == 11
        account.hold("b", 3)
        assert account.held == 14, "but for more than it was made for"

    def test_without_a_budget_everything_fits(self):
        account = MemoryBooks(ResidencyConfig())
        account.hold("a", 10**15)
        assert account.fits(10**15)
        assert account.short_of(10**15) == 0
        assert account.room is None

    def test_in_models(self):
        account = MemoryBooks(ResidencyConfig(max_models=2, headroom_models=1))
        account.measured(10**9)
        assert account.view() == MemoryView("models", 2, headroom=1)


class TestLost:
    """What the worker holds beyond what is known: field report 32."""

    def test_what_is_not_given_back_is_not_there_to_be_given_away(self):
        account = books(100)
        account.measured(1000)
        account.hold("a", 50)
        account.measured(1050)
        assert account.lost == 0
        account.free("a")
        account.measured(1020)
        assert account.lost == 20
        assert account.room == 80
        assert not account.fits(81)
        account.measured(1000)
        assert account.lost == 0, "it came late"

    def test_sizes_that_are_too_large_or_too_small(self):
        account = books(100)
        account.hold("a", 50)
        account.measured(30)
        assert account.lost == 0
        account.free("a")
        account.measured(0)
        assert account.lost == 0, "never below 0"
        account.hold("b", 10)
        account.measured(40)
        assert account.lost == 30

    def test_a_new_worker_begins_anew(self):
        account = books(100)
        account.measured(1000)
        account.measured(1020)
        account.clear()
        assert account.lost == 0
        account.measured(2000)
        assert account.lost == 0

    def engine(self):
        models = Models(sized(make_profile(a=[10], b=[10], c=[10]), a=60, b=40, c=70), streams="abc", budget_bytes=100)
        models.at(0, MemoryMeasured(1000))
        models.frames(1, "a")
        models.loaded(2, "a")
        models.run(12)
        return models

    def test_no_load_begins_that_does_not_fit_what_is_free(self):
        models = self.engine()
        models.at(20, MemoryMeasured(1080))
        assert models.engine.snapshot().memory.lost == 20
        assert calls(models.frames(21, "b")) == "-a", "60 + 40 is too much by now"
        assert every(models.frames(22, "c"), DropFrames) == [], "70 is not too much for ever"
        assert calls(models.gone(30, "a")) == "+b"

    def test_and_the_refusal_says_so(self):
        models = self.engine()
        models.at(20, MemoryMeasured(1100))
        (refused,) = [action for action in models.hold(21, "c") if refusals([action])]
        assert (refused.reason, refused.memory.lost, refused.memory.free) == ("no_room", 40, 60)

    def test_it_is_measured_only_while_nothing_comes_or_goes(self):
        models = self.engine()
        models.at(20, RequestUnload("a"))
        models.at(21, MemoryMeasured(5000))
        assert models.engine.snapshot().memory.lost == 0

    def test_what_the_worker_reports_of_a_model_counts(self):
        models = self.engine()
        models.frames(20, "b")
        models.at(30, ModelLoaded("b", warm=True, held_bytes=39))
        assert (models.view("b").held, models.view("b").size) == (39, 39)
        models.at(31, WorkerLost(LOCAL_WORKER), WorkerBack(LOCAL_WORKER))
        assert models.view("b").size == 39


class TestReplacement:
    def models(self, **used):
        found = []
        for name, last_use in used.items():
            model = Model(name, ModelState.RESIDENT)
            model.last_use_ns = last_use
            found.append(model)
        return found

    def test_lru(self):
        ordered = in_order(self.models(a=3, b=None, c=1), Replacement.LRU, {}, {"b": 0})
        assert [model.name for model in ordered] == ["b", "c", "a"]

    def test_next_use(self):
        ordered = in_order(self.models(a=3, b=2, c=1), Replacement.NEXT_USE, {}, {"a": 9, "b": 5})
        assert [model.name for model in ordered] == ["c", "a", "b"]

    def test_what_frames_wait_for_is_last(self):
        ordered = in_order(self.models(a=3, b=2), Replacement.NEXT_USE, {"b": 0}, {"a": 1})
        assert [model.name for model in ordered] == ["a", "b"]

    @pytest.mark.parametrize(
        ("weights", "short", "chosen"),
        [
            ({"a": 1, "b": 1, "c": 1}, 2, "ab"),
            ({"a": 1, "b": 1, "c": 5}, 4, "c"),
            ({"a": 2, "b": 1, "c": 3}, 5, "ac"),
            ({"a": 2, "b": 2}, 9, "ab"),
            ({"a": 2}, 0, ""),
        ],
    )
    def test_just_enough(self, weights, short, chosen):
        models = self.models(**dict.fromkeys(weights, 0))
        assert "".join(model.name for model in just_enough(models, weights, short)) == chosen


class TestProfile:
    PROFILE = Profile(
        make_profile(a=[10, 14], b=[20]).entries,
        (
            ModelEntry("a", "1", 100, 10, 50, interference_p99=1.5, load_max_ms=200, unload_max_ms=20),
            ModelEntry("a", "2", 150, 30, 70),
        ),
    )

    def test_sizes_and_times_of_models(self):
        assert self.PROFILE.weight("a") == 70
        assert self.PROFILE.weight("b") is None
        assert self.PROFILE.load_ns("a") == 220 * MS
        assert self.PROFILE.unload_ns("a") == 33 * MS
        assert self.PROFILE.load_ns("b") is self.PROFILE.unload_ns("b") is None

    def test_beside_loads_every_execution_is_longer(self):
        profile = self.PROFILE.beside_loads(2.0)
        a, b = make_category("a"), make_category("b")
        assert profile.table(a) == (0, 15 * MS, 21 * MS)
        assert profile.table(b) == (0, 40 * MS)
        assert profile.typical(b) == (0, 20 * MS)
        assert profile.to_dict() == self.PROFILE.to_dict()
        assert profile.without_batches(a).table(a) == (0, 15 * MS)

    @pytest.mark.parametrize(
        ("residency", "longer"),
        [
            ({}, False),
            ({"max_models": 2}, False),
            ({"max_models": 1}, True),
            ({"budget_bytes": 70}, False),
            ({"budget_bytes": 69}, True),
        ],
    )
    def test_they_are_where_not_all_models_fit(self, residency, longer):
        config = EngineConfig(residency=ResidencyConfig(**residency, interference=2.0), dispatch_overhead_ns=MS)
        table = planned(self.PROFILE, config).table(make_category("b"))
        assert table == (0, (41 if longer else 21) * MS)
