"""Penalty, pay-back, restoration, and the overruns that are held against nobody (times in ms)."""

from itertools import count

import pytest

from gateway.core.actions import (
    Admitted,
    BatchLimited,
    DeliverFrames,
    PenaltyChanged,
    StartJob,
    StreamEnded,
)
from gateway.core.events import (
    CloseStream,
    FramesArrived,
    JobFailed,
    JobFinished,
    LimitBatches,
    RegisterStream,
    WorkerBack,
    WorkerLost,
)
from gateway.core.log import entry
from gateway.core.profile import Profile, ProfileEntry
from gateway.core.types import Category, Outcome, ServiceClass
from tests.core.factories import MS, Drive, every, make_spec, only

LARGE, MIDDLE, SMALL = (16, 16, 3), (12, 16, 3), (8, 8, 3)
CAMERA = make_spec(200, 200, shape=LARGE)
TIMES = {LARGE: (20, 30, 40), MIDDLE: (14, 20), SMALL: (5, 8, 11)}


def make_profile(times=TIMES, dtype="UINT8"):
    return Profile(
        tuple(
            ProfileEntry("m", "1", shape, dtype, batch, 1000, ms, ms, ms)
            for shape, row in times.items()
            for batch, ms in enumerate(row, 1)
        )
    )


class Camera:
    """One stream `a` on an engine that was warm when it began: frames one by one, each as long as it is told."""

    def __init__(self, profile=None, start=0.0, **config):
        self.gate = Drive(profile or make_profile(), admit_all=True, **config)
        self.now = start
        self.gate.register(start, a=make_spec(1, 100, shape=LARGE, burst=4))
        self.run(1)

    def run(self, took, frames=1, after=10.0, **end):
        """Send frames `after` the end of the last job; return the job that runs them, and the change of the penalty."""
        self.now += after
        job = only(self.gate.at(self.now, FramesArrived("a", frames)), StartJob).job
        self.now += took
        actions = self.gate.at(self.now, JobFinished(job.id, **end))
        changes = every(actions, PenaltyChanged)
        assert len(changes) <= 1
        return job, changes[0] if changes else None

    @property
    def view(self):
        (category,) = self.gate.engine.snapshot().categories
        return category.penalty_ns / MS, category.small_shape


class TestPenalty:
    def test_in_time_changes_nothing(self):
        camera = Camera()
        job, change = camera.run(20)
        assert (job.small, change, camera.view) == (None, None, (0, None))

    def test_an_overrun_is_paid_back_at_the_next_smaller_shape(self):
        camera = Camera()
        _, change = camera.run(27)
        native = Category("m", "1", LARGE)
        assert change == PenaltyChanged(native, 7 * MS, MIDDLE, "overrun")
        assert camera.view == (7, MIDDLE)
        job, change = camera.run(15)
        assert (job.category, job.small, job.execution_ns) == (native, Category("m", "1", MIDDLE), 14 * MS)
        assert change == PenaltyChanged(native, 2 * MS, MIDDLE, "paid_back")
        job, change = camera.run(12)
        assert job.small is not None
        assert change == PenaltyChanged(native, 0, None, "paid_back")
        assert camera.view == (0, None)
        job, change = camera.run(20)
        assert (job.small, job.execution_ns, change) == (None, 20 * MS, None)

    def test_excesses_add_up(self):
        camera = Camera(make_profile({LARGE: (20,)}))
        assert [camera.run(took)[1].penalty_ns // MS for took in (25, 23)] == [5, 8]

    def test_a_small_job_that_takes_longer_than_the_native_one_adds_to_it(self):
        camera = Camera()
        camera.run(27)
        _, change = camera.run(24)
        assert (change.penalty_ns, change.reason) == (11 * MS, "overrun")

    def test_a_small_job_that_saves_nothing_changes_nothing(self):
        camera = Camera()
        camera.run(27)
        assert camera.run(20)[1] is None
        assert camera.view == (7, MIDDLE)

    def test_the_native_frames_of_a_small_shape_stay_by_themselves(self):
        camera = Camera()
        camera.run(27)
        camera.gate.register(camera.now, b=make_spec(100, 100, shape=MIDDLE))
        camera.now += 10
        started = [job.job for name in "ab" for job in every(camera.gate.at(camera.now, FramesArrived(name)), StartJob)]
        started += [a.job for a in every(camera.gate.finish(camera.now + 14, started[0]), StartJob)]
        assert [(job.category.shape, job.small and job.small.shape) for job in started] == [
            (LARGE, MIDDLE),
            (MIDDLE, None),
        ]

    def test_it_ends_with_the_categorys_last_stream(self):
        camera = Camera()
        camera.run(27)
        change, ended = camera.gate.at(camera.now, CloseStream("a"))
        assert change == PenaltyChanged(Category("m", "1", LARGE), 0, None, "ended")
        assert isinstance(ended, StreamEnded)
        camera.gate.register(camera.now, a=make_spec(100, 100, shape=LARGE))
        assert camera.run(20)[0].small is None

    def test_a_lost_worker_neither_adds_nor_forgives(self):
        camera = Camera()
        camera.run(27)
        camera.gate.frames(camera.now + 10, "a")
        camera.gate.at(camera.now + 300, WorkerLost("local"))
        camera.gate.at(camera.now + 310, WorkerBack("local"))
        assert camera.view == (7, MIDDLE)

    def test_it_may_be_turned_off(self):
        camera = Camera(adaptation=False)
        assert camera.run(27)[1] is None
        assert camera.run(20)[0].small is None
        assert camera.view == (0, None)

    def test_overhead_is_part_of_both_times(self):
        camera = Camera(dispatch_overhead_ns=2 * MS)
        assert camera.run(22)[1] is None
        _, change = camera.run(23)
        assert change.penalty_ns == MS
        assert camera.run(16)[0].execution_ns == 16 * MS

    def test_best_effort_never_adapts(self):
        gate = Drive(make_profile())
        gate.register(0, a=make_spec(100, 100, shape=LARGE, service_class=ServiceClass.BEST_EFFORT))
        now = 0
        for took in (20, 50, 50):
            job = only(gate.frames(now, "a"), StartJob).job
            assert job.small is None
            now += took
            assert not every(gate.finish(now, job), PenaltyChanged)
            now += 10

    def test_the_log_shows_it(self):
        camera = Camera()
        _, change = camera.run(27)
        line = entry(0, change)
        assert line["action"] == "penalty_changed"
        assert (line["penalty_ns"], line["shape"], line["reason"]) == (7 * MS, [12, 16, 3], "overrun")
        job, _ = camera.run(14)
        assert entry(0, StartJob(job))["shape"] == [12, 16, 3]


class TestSmallerShape:
    def test_there_is_none(self):
        camera = Camera(make_profile({LARGE: (20, 30)}))
        _, change = camera.run(27)
        assert change == PenaltyChanged(Category("m", "1", LARGE), 7 * MS, None, "no_smaller_shape")
        assert camera.view == (7, None)
        job, change = camera.run(20)
        assert (job.small, change) == (None, None)

    def test_a_batch_that_the_smaller_table_does_not_cover_runs_as_it_is(self):
        camera = Camera()
        camera.run(27)
        job, _ = camera.run(40, frames=3)
        assert (job.small, job.execution_ns) == (None, 40 * MS)
        assert camera.run(20, frames=2)[0].small is not None

    def test_a_smaller_shape_that_is_no_faster_is_not_used(self):
        camera = Camera(make_profile({LARGE: (20, 30), SMALL: (20, 29)}))
        camera.run(27)
        assert camera.run(20)[0].small is None
        assert camera.run(20, frames=2)[0].small is not None

    @pytest.mark.parametrize("small", [(20, 30), (30, 60), (25,)])
    def test_one_that_never_saves_time_is_none(self, small):
        """And a penalty that cannot be paid back changes nothing: frames are not given up for what does not run."""
        camera = Camera(make_profile({LARGE: (20, 30), SMALL: small}), policing=False)
        assert camera.run(27)[1] == PenaltyChanged(Category("m", "1", LARGE), 7 * MS, None, "no_smaller_shape")
        assert camera.view == (7, None)
        gate, t = camera.gate, camera.now + 10
        gate.register(t, b=make_spec(100, 24, shape=LARGE))
        job = only(gate.frames(t, "b"), StartJob).job
        assert job.small is None

    def test_the_next_one_that_saves_time_is_taken(self):
        camera = Camera(make_profile({LARGE: (20, 30), MIDDLE: (20, 30), SMALL: (15, 20)}))
        assert camera.run(27)[1].shape == SMALL

    def test_frames_are_given_up_for_what_would_run(self):
        """Alone it runs native, 20; two would run small, 29."""
        camera = Camera(make_profile({LARGE: (20, 30), SMALL: (24, 29)}))
        camera.run(27)
        gate, t = camera.gate, camera.now + 10
        gate.register(t, b=make_spec(100, 22, shape=LARGE))
        assert only(gate.frames(t, "b"), StartJob).job.small is None

    @pytest.mark.parametrize(
        ("shape", "others", "found"),
        [
            ((64, 64, 3), [(48, 48, 3), (32, 60, 3), (64, 64, 1)], (48, 48, 3)),
            ((64, 64, 3), [(65, 8, 3)], None),  # would be scaled up
            ((64, 64, 3), [(32, 64, 3), (64, 32, 3)], (64, 32, 3)),
            ((3, 64, 64), [(3, 32, 64), (2, 64, 64)], None),  # channels first
            ((64, 64), [(32, 64)], None),
            ((64,), [(32,)], None),
            ((1, 64, 64, 3), [(1, 32, 32, 3)], None),
        ],
    )
    def test_which(self, shape, others, found):
        profile = make_profile({shape: (2,)} | dict.fromkeys(others, (1,)))
        smaller = next(profile.faster_smaller(Category("m", "1", shape)), None)
        assert (smaller and smaller.shape) == found

    def test_frames_that_are_no_pictures_are_not_scaled(self):
        profile = make_profile(dtype="INT64")
        assert next(profile.faster_smaller(Category("m", "1", LARGE, "INT64")), None) is None
        assert next(make_profile(dtype="FP16").faster_smaller(Category("m", "1", LARGE, "FP16")), None).shape == MIDDLE

    def test_another_version_is_another_model(self):
        assert next(make_profile().faster_smaller(Category("m", "2", LARGE)), None) is None


class TestLimits:
    """Batches of the small shape fail, those of the native one do not."""

    def gate(self):
        gate = Drive(make_profile({LARGE: (20, 24), SMALL: (5, 6)}), early_dispatch=False, admission_test="sporadic")
        assert all(v.admitted for v in gate.register(0, a=CAMERA, b=CAMERA))
        gate.finish(120, self.send(gate, 0))
        gate.finish(360, self.send(gate, 200))  # 36 ms over
        assert gate.engine.snapshot().categories[0].small_shape == SMALL
        return gate

    def send(self, gate, t):
        gate.frames(t, "a", "b")
        return only(gate.at(t + 100), StartJob).job

    def test_none_is_sent_any_more(self):
        gate = self.gate()
        gate.at(390, LimitBatches(Category("m", "1", SMALL), "warm-up"))
        job = self.send(gate, 400)
        assert (len(job.frames), job.small, job.execution_ns) == (2, None, 24 * MS)

    def test_it_is_the_small_shape_that_is_limited(self):
        gate, limited = self.gate(), []
        for t in (400, 600):
            job = self.send(gate, t)
            assert (len(job.frames), job.small) == (2, Category("m", "1", SMALL))
            actions, now = gate.at(t + 106, JobFailed(job.id, "refused", retry=True)), t + 106
            while (started := every(actions, StartJob)) != []:
                now += started[0].job.execution_ns // MS
                actions = gate.finish(now, started[0].job)
                limited += every(actions, BatchLimited)
        assert [action.category for action in limited] == [Category("m", "1", SMALL)]
        assert limited[0].verdict.admitted
        job = self.send(gate, 800)
        assert (len(job.frames), job.small) == (2, None)

    def test_a_small_job_of_one_frame_that_is_refused_is_tried_again_as_it_is(self):
        """Answered, it was not the stream's fault; and after two of them nothing runs small any more."""
        camera, shapes = Camera(make_profile({LARGE: (20,), SMALL: (5,)})), []
        camera.run(60)
        for _ in range(3):
            camera.now += 200
            job = only(camera.gate.frames(camera.now, "a"), StartJob).job
            shapes.append(job.small and job.small.shape)
            if job.small is not None:
                actions = camera.gate.at(camera.now + 5, JobFailed(job.id, "refused", retry=True))
                job = only(actions, StartJob).job
                assert job.small is None
            actions = camera.gate.finish(camera.now + 25, job)
            assert only(actions, DeliverFrames).outcomes == (Outcome.MET,)
        assert shapes == [SMALL, SMALL, None]
        assert camera.view == (45, None)  # 5 more by the last one
        assert not camera.gate.engine.suspect("a")

    def test_whose_fault_it_is_shows_when_it_is_refused_as_it_is_too(self):
        camera = Camera(make_profile({LARGE: (20,), SMALL: (5,)}))
        camera.run(60)
        job = only(camera.gate.frames(camera.now + 100, "a"), StartJob).job
        job = only(camera.gate.at(camera.now + 105, JobFailed(job.id, "refused", retry=True)), StartJob).job
        camera.gate.at(camera.now + 125, JobFailed(job.id, "refused", retry=True))
        assert camera.gate.engine.suspect("a")
        assert camera.view == (40, SMALL)

    def test_a_job_that_ran_in_a_larger_batch_than_is_known_now_pays_back_what_it_saved(self):
        gate = self.gate()
        job = self.send(gate, 400)
        gate.at(501, LimitBatches(Category("m", "1", LARGE), "told"))
        assert only(gate.finish(506, job), PenaltyChanged).penalty_ns == (36 - 18) * MS


class TestExcuses:
    def test_a_first_execution_is_no_overrun(self):
        camera = Camera()
        assert camera.run(800, warm_up=True)[1] is None
        assert camera.run(20)[0].small is None

    def test_an_overrun_after_a_long_pause_is_shown_and_not_held_against_anyone(self):
        camera = Camera()
        job, change = camera.run(40, after=500)
        assert (job.small, change) == (None, None)
        assert camera.run(40, after=499)[1].penalty_ns == 20 * MS

    def test_the_very_first_job_finds_a_cold_device(self):
        gate = Drive(make_profile())
        gate.register(0, a=make_spec(100, 100, shape=LARGE))
        job = only(gate.frames(0, "a"), StartJob).job
        delivered = only(gate.finish(50, job), DeliverFrames)
        assert delivered.cause == "cold"
        assert entry(0, delivered)["cause"] == "cold"

    def test_causes(self):
        camera = Camera()
        for took, after, warm_up, cause in (
            (20, 10, True, ""),
            (21, 10, False, "overrun"),
            (21, 500, False, "cold"),
            (21, 500, True, "warm_up"),
        ):
            camera.now += after
            # A small job would not have overrun at 20.
            camera.gate.engine._adaptation.forget(Category("m", "1", LARGE))
            job = only(camera.gate.frames(camera.now, "a"), StartJob).job
            camera.now += took
            actions = camera.gate.at(camera.now, JobFinished(job.id, warm_up=warm_up))
            assert only(actions, DeliverFrames).cause == cause

    def test_a_camera_that_always_finds_a_cold_device_is_restored(self):
        camera = Camera()
        camera.run(40)  # a true overrun: 20
        shapes = []
        for n in count():
            # Twice the profiled time, cold, every time: longer than the native frames would have taken.
            job, _ = camera.run(28, after=2_000)
            if job.small is None:
                break
            shapes.append(job.small.shape)
            assert n < 10
        assert shapes == [MIDDLE] * 4  # 6 are saved each time by the profile

    def test_without_a_limit_every_device_is_cold(self):
        camera = Camera(cold_after_ns=0)
        assert camera.run(40)[1] is None


def test_admission_counts_on_the_native_times_whatever_runs():
    admitted = []
    for took in (20, 27):
        gate = Drive(make_profile())
        gate.register(0, a=make_spec(100, 100, shape=LARGE, frames=50))
        for now in (0, 100):
            gate.finish(now + took, only(gate.frames(now, "a"), StartJob).job)
        crowd = (RegisterStream(f"b{n}", make_spec(100, 100, shape=LARGE, frames=50)) for n in range(12))
        admitted.append(len(every(gate.at(150, *crowd), Admitted)))
        assert (gate.engine.snapshot().categories[0].penalty_ns > 0) == (took > 20)
    assert admitted[0] == admitted[1]
    assert 0 < admitted[0] < 12
