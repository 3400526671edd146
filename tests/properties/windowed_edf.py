"""A plain windowed EDF device and cameras that try to break it, for the sporadic test.

It shares no code with the engine: windows, batches and non-preemptive EDF from their descriptions, early dispatch and
best effort whenever nothing is ready and the adversary feels like it.
"""

import heapq
from dataclasses import dataclass, field

from gateway.core.config import EngineConfig
from gateway.core.plan_state import AdmissionState, StreamPhase, WindowState
from gateway.core.types import Frame, Job
from tests.core.factories import MS


class Camera:
    """An admitted stream, and what a policer would have seen of it.

    A stream sends at most ``burst * ceil((L + jitter) / period)`` frames in any interval of length L. That is the same
    as one GCRA for each place in a group, taken in turn; `earliest` holds when each place may be taken next.
    """

    def __init__(self, name, spec, start):
        self.name, self.spec, self.remaining, self.gone = name, spec, spec.frames, False
        self.earliest, self.place = [start] * spec.burst, 0

    def arrive(self, t):
        assert t >= self.earliest[self.place], "the adversary broke its contract"
        self.earliest[self.place] = max(self.earliest[self.place], t - self.spec.jitter_ns) + self.spec.period_ns
        self.place = (self.place + 1) % self.spec.burst
        self.remaining = None if self.remaining is None else self.remaining - 1

    def phase(self, now):
        spec = self.spec
        due = min([*self.earliest[self.place :], *(t - spec.period_ns for t in self.earliest[: self.place])])
        left, overdue = spec.burst - self.place, 0
        while due + spec.jitter_ns < now:
            due, left, overdue = due + spec.period_ns, spec.burst, left
        if self.remaining is not None:
            overdue = min(overdue, self.remaining)
        return StreamPhase(
            self.name,
            spec.category(),
            spec.period_ns,
            spec.deadline_ns,
            due,
            self.remaining,
            spec.burst,
            spec.jitter_ns,
            left,
            overdue,
        )


@dataclass
class Windows:
    """Of one category."""

    width: int
    narrowest: int
    joint: int
    batches: list = field(default_factory=list)  # [id, frames]

    def pass_by(self, t):
        while self.joint <= t:
            self.joint += self.width
            self.narrowest = self.width


MOODS = ("grid", "grid", "late first", "drift", "gaps", "focus", "focus")


def attack(rng, spec, start, until, focus, moods=MOODS):
    """Arrivals that keep the contract of `spec`, as nasty as `rng` and a critical instant `focus` make them.

    "focus": silence until then, a first group as late as may be, and the following as early as may be.
    """
    mood = rng.choice(moods)
    anchor, arrivals, sent = start, [], 0
    if mood == "focus":
        anchor = max(start, focus - spec.jitter_ns - rng.choice([0, 0, rng.randrange(spec.deadline_ns // 2)]))
    while anchor < until and (spec.frames is None or sent < spec.frames):
        first = mood in ("late first", "focus") and not arrivals
        for _ in range(spec.burst):
            if spec.frames is not None and sent == spec.frames:
                break
            sent += 1
            if first:
                shift = spec.jitter_ns
            elif mood in ("late first", "focus"):
                shift = 0
            else:
                shift = rng.choice([0, spec.jitter_ns, rng.randint(0, spec.jitter_ns)])
            if mood == "focus" or rng.random() > 0.05:
                arrivals.append(anchor + shift)
        anchor += spec.period_ns
        if mood == "drift":
            anchor += rng.choice([0, 1, 1000, MS])
        if mood == "gaps" and rng.random() < 0.3:
            anchor += rng.randrange(3 * spec.period_ns)
    return sorted(arrivals)


def critical(spec, joint):
    """As many frames as the contract allows from the window that ends at `joint` on; none before."""
    window = spec.deadline_ns // 2
    anchor, sent = joint - window - spec.jitter_ns, 0
    while anchor < joint + 40 * window:
        for _ in range(spec.burst):
            if spec.frames is None or sent < spec.frames:
                yield max(anchor, joint - window)
                sent += 1
        anchor += spec.period_ns


class Device:
    """One device under plain EDF. `late` collects every frame that misses."""

    def __init__(self, profile, rng, *, nasty=True, **config):
        self.profile, self.rng, self.nasty = profile, rng, nasty
        self.config = EngineConfig(**config)
        self.windows, self.cameras, self.ready, self.late = {}, {}, [], []
        self.arrivals, self.pokes = [], []
        self.now = self.free = 0
        self.next_job, self.blocking, self.jobs = 0, 0, 0
        self.best_effort = ()
        self.worst = {}  # latency by stream

    # ------------------------------------------------------------ admission

    def record(self):
        live = [camera for camera in self.cameras.values() if not camera.gone and camera.remaining != 0]
        self._close_windows()
        return AdmissionState(
            now_ns=self.now,
            free_ns=max(self.free, self.now),
            ready=tuple(self._job(key, batch) for key, batch in sorted(self.ready)),
            windows=tuple(self._window(category, w) for category, w in self.windows.items()),
            streams=tuple(camera.phase(self.now) for camera in live),
            profile=self.profile,
            config=self.config,
            best_effort=self.best_effort,
        )

    def _job(self, key, batch):
        category, frames = batch
        execution = self.profile.execution_ns(category, len(frames))
        return Job(key[2], category, tuple(frames), key[1], key[0], execution)

    def _window(self, category, windows):
        present = {frame.stream_id for _, frames in windows.batches for frame in frames}
        deadlines = [
            camera.spec.deadline_ns
            for name, camera in self.cameras.items()
            if camera.spec.category() == category and (not camera.gone or name in present)
        ]
        waiting = tuple(tuple(frames) for _, frames in windows.batches)
        widest = min(deadlines, default=2 * windows.width) // 2
        return WindowState(category, windows.width, windows.narrowest, windows.joint, waiting, widest)

    def admit(self, name, spec, plan):
        """Take an admitted stream in."""
        for window in plan.windows:
            self._install(window)
        self.blocking = plan.blocking_ns
        self.cameras[name] = Camera(name, spec, self.now + spec.start_in_ns)

    def join(self, name, spec, plan, until, focus, moods=MOODS):
        """Take an admitted stream in, with all that it will ever send."""
        self.admit(name, spec, plan)
        start = self.now + spec.start_in_ns
        self.expect(name, attack(self.rng, spec, start, until, focus, moods))

    def expect(self, name, arrivals):
        for n, t in enumerate(arrivals):
            heapq.heappush(self.arrivals, (t, name, n))

    def _install(self, window):
        mine = self.windows.get(window.category)
        if mine is None:
            self.windows[window.category] = Windows(window.window_ns, window.window_ns, window.joint_ns)
        else:
            mine.width, mine.joint = window.window_ns, window.joint_ns
            mine.narrowest = min(mine.narrowest, mine.width)

    def widen(self, plan):
        self.blocking = plan.blocking_ns
        for window in plan.windows:
            self.windows[window.category].width = window.window_ns

    # ------------------------------------------------------------ time

    def run(self, until):
        """Let time pass, up to but not including `until`."""
        while True:
            joints = [w.joint for w in self.windows.values() if w.batches]
            times = [*joints, *self.pokes[:1]]
            if self.arrivals:
                times.append(self.arrivals[0][0])
            if self.free > self.now or self.ready:
                times.append(max(self.free, self.now))
            if not times or min(times) >= until:
                self.now = max(self.now, until)
                return
            self.now = max(self.now, min(times))
            self._step()

    def _step(self):
        self._close_windows()
        while self.pokes and self.pokes[0] <= self.now:
            heapq.heappop(self.pokes)
        while self.arrivals and self.arrivals[0][0] <= self.now:
            _, name, _ = heapq.heappop(self.arrivals)
            camera = self.cameras[name]
            if not camera.gone:
                camera.arrive(self.now)
                self._accept(camera)
        if self.free <= self.now:
            self._dispatch()

    def _close_windows(self):
        for category, windows in self.windows.items():
            if windows.joint <= self.now and windows.batches:
                deadline = min(f.deadline_ns for _, frames in windows.batches for f in frames)
                for job_id, frames in windows.batches:
                    self.ready.append(((deadline, windows.joint, job_id), (category, frames)))
                windows.batches = []
            windows.pass_by(self.now)

    def _accept(self, camera):
        category = camera.spec.category()
        windows = self.windows[category]
        windows.pass_by(self.now)
        if not windows.batches or len(windows.batches[-1][1]) == self.profile.max_batch(category):
            windows.batches.append([self.next_job, []])
            self.next_job += 1
            heapq.heappush(self.pokes, windows.joint - 1)
        job_id, frames = windows.batches[-1]
        frames.append(Frame(camera.name, 0, self.now, self.now + camera.spec.deadline_ns, job_id))

    def _dispatch(self):
        if self.ready:
            self.ready.sort()
            _, (category, frames) = self.ready.pop(0)
            self._start(category, frames)
        elif self.nasty and self.rng.random() < 0.7:
            waiting = [(c, w) for c, w in self.windows.items() if w.batches]
            if waiting and self.rng.random() < 0.5:
                category, windows = self.rng.choice(waiting)
                self._start(category, windows.batches.pop(0)[1])
            elif self.blocking and self.rng.random() < 0.7:
                self.free = self.now + self.blocking  # best effort

    def _start(self, category, frames):
        execution = self.profile.execution_ns(category, len(frames))
        if self.rng.random() < 0.1:
            execution = max(1, execution - self.rng.randint(0, execution))
        self.free = self.now + execution
        self.jobs += 1
        for frame in frames:
            latency = self.free - frame.arrival_ns
            self.worst[frame.stream_id] = max(latency, self.worst.get(frame.stream_id, 0))
        self.late += [frame for frame in frames if self.free > frame.deadline_ns]
