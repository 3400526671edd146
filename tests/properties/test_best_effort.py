"""Best effort gets what promised work leaves, and takes nothing from it."""

from random import Random

from hypothesis import event, given, settings
from hypothesis import strategies as st

from gateway.core.actions import DropFrames, StartJob
from gateway.core.batch import NEVER_NS, Standing
from gateway.core.config import EngineConfig
from gateway.core.engine import Engine
from gateway.core.types import ServiceClass
from tests.core.factories import MS
from tests.properties.rig import Rig
from tests.properties.test_guard import MISSING, SEEDS, SHORTER, draw_profile, draw_stream


class Watch(Rig):
    """Looks after each event for a device that idles though best effort might run."""

    def _handle(self, now_ns, what):
        super()._handle(now_ns, what)
        waiting, device = self.engine._waiting, self.engine._device
        frames = [b for b in waiting.batches.values() if b.standing is Standing.BEST_EFFORT]
        assert waiting.best_effort_frames == sum(len(batch.frames) for batch in frames)
        if device.running is not None or not frames:
            return
        guard, allowed_ns = waiting.guard, self.engine.config.best_effort_blocking_ns
        promised = waiting.taking or any(b.standing is Standing.PROMISED for b in waiting.batches.values())
        most_ns = waiting.blocking_ns if promised else NEVER_NS
        for batch in frames:
            if batch.release_ns is None and (
                not self.engine.config.early_dispatch or batch is not waiting.batchers[batch.category].batches[0]
            ):
                continue
            self.counts["held back"] += 1
            length_ns = batch.table[len(batch.frames)]
            if guard is None:
                assert length_ns > most_ns, "the device idles, and nothing speaks against it"
            else:
                assert not guard.allows(batch, now_ns), "the device idles, and no promise speaks against it"
                assert length_ns > allowed_ns, "admission has allowed for so long a job"


def run(seed, missing, shorter, **config):
    rng = Random(seed)
    engine = Engine(
        draw_profile(rng),
        EngineConfig(
            early_dispatch=rng.random() < 0.7,
            max_horizon_frames=3_000,
            best_effort_window_ns=rng.choice([20, 200]) * MS,
            **config,
        ),
    )
    rig = Watch(engine, seed, missing=missing, shorter=shorter)
    for n in range(rng.randint(2, 7)):
        fields = {"service_class": ServiceClass.BEST_EFFORT} if n < 2 else {}
        spec, join_ns, leave_ns = draw_stream(rng, slack=rng.choice([1, 3]), **fields)
        rig.join(join_ns, f"s{n}", spec, leave_ns)
    rig.run()
    return rig


@settings(max_examples=300)
@given(SEEDS, MISSING, SHORTER, st.sampled_from([0, 0, 5, 20]), st.sampled_from(["exact", "sporadic"]))
def test_it_gets_what_is_left_and_no_promise_suffers(seed, missing, shorter, blocking, test):
    rig = run(seed, missing, shorter, best_effort_blocking_ns=blocking * MS, admission_test=test)
    assert not rig.bad
    rig.mirror.check(rig.engine.snapshot())
    event("held back" if rig.counts["held back"] else "never idle beside it")


@settings(max_examples=150)
@given(SEEDS, MISSING)
def test_none_waits_longer_than_it_said(seed, missing):
    """Field report 28: each frame starts or is given up by its time-out, with a reason."""
    rig = run(seed, missing, 0.0)
    for t_ns, action in rig.log:
        if isinstance(action, StartJob) and action.job.category.service_class is ServiceClass.BEST_EFFORT:
            assert all(t_ns < frame.deadline_ns or frame.on_late == "serve" for frame in action.job.frames)
        if isinstance(action, DropFrames):
            assert action.reason == "expired" or action.reason.startswith("too_long: ")
            assert all(frame.deadline_ns == t_ns for frame in action.frames)
