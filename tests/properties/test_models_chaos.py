"""Models that come and go, everything at once (`tests.properties.models_rig`).

The worker (`tests.properties.worker`) holds the engine to its rules at every step. Here is what must be true at the
end: every frame has ended, nothing is held that is not there, and nothing waits for something that will not happen.
"""

from hypothesis import event, example, given, settings

from gateway.core.actions import DropFrames, ModelRefused
from gateway.core.types import ModelState
from tests.core.factories import every
from tests.properties.models_rig import draw
from tests.properties.test_guard import SEEDS


def check_end(rig):
    engine, worker = rig.engine, rig.worker
    view = engine.snapshot()
    rig.mirror.check(view)
    assert view.streams == view.categories == ()
    assert rig.mirror.ended.keys() == rig.mirror.accepted, "a frame has not ended"
    assert worker.quiet, "something is under way at the end"
    there = {model.model for model in view.residency if model.state is ModelState.RESIDENT}
    assert there == set(worker.state), "the engine's account is not what is there"
    assert view.memory.held == worker.held()
    assert view.memory.region == 0, "no stream needs it any more"
    for model in view.residency:
        assert model.state in (ModelState.RESIDENT, ModelState.ABSENT, ModelState.FAILED), model
        assert (model.held > 0) == (model.state is ModelState.RESIDENT), model
        assert model.waiting == 0, model
        assert not (model.barred and model.state is ModelState.RESIDENT), model


@settings(max_examples=300)
@given(SEEDS)
@example(1114)  # the region held more than its share, and a model that has to stay found no room
@example(2773)  # as did one that was kept out by a model that could not be warmed
def test_every_frame_of_a_model_that_can_be_loaded_is_served(seed):
    """Nothing goes wrong; models come and go for frames alone, or for streams that are admitted."""
    rig = draw(seed, trouble=False).run()
    check_end(rig)
    drops = every([action for _, action in rig.log], DropFrames)
    assert {action.reason.partition(":")[0] for action in drops} <= {"no_room", "too_long"}, drops
    assert rig.bad == []
    event(f"loads: {min(rig.worker.counts['loads'] // 5 * 5, 20)}")
    event(f"waited: {rig.counts['waited for its model'] > 0}")
    event(f"turns: {rig.worker.counts['load swap'] > 0}")


@settings(max_examples=500)
@given(SEEDS)
@example(863)  # what was lost was the region's
@example(1050)  # a command that was carried out by an unload that failed
@example(1523)  # a model that gave way was to be loaded anew in the same breath
@example(2902)  # a model that was to go was pinned, in the region's way
def test_the_books_balance_whatever_happens(seed):
    rig = draw(seed, trouble=True).run()
    check_end(rig)
    for kind in sorted(rig.worker.counts):
        event(kind)
    for refused in every([action for _, action in rig.log], ModelRefused):
        event(f"refused {refused.reason.partition(':')[0]}")
