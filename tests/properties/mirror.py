"""What a driver keeps of the engine's decisions, kept as simply as can be, and held against the engine."""

from collections import Counter
from dataclasses import replace

from gateway.core.actions import (
    AcceptFrames,
    DeliverFrames,
    DropFrames,
    RefuseFrames,
    RetryFrames,
    StartJob,
    StreamEnded,
)


class Mirror:
    """Batches as a driver lays them out in memory, and the end of every frame."""

    def __init__(self):
        self.batches = {}
        self.under_way = []  # the job that runs, and one that was sent ahead
        self.failing = (None, None)
        self.accepted = set()
        self.ended = {}
        self.refused = Counter()
        self.streams_ended = []

    def carry_out(self, actions, now_ns):
        for action in actions:
            match action:
                case AcceptFrames():
                    self._accept(action, now_ns)
                case DropFrames():
                    self._drop(action, now_ns)
                case RetryFrames():
                    self._retry(action)
                case StartJob():
                    self._start(action, now_ns)
                case DeliverFrames():
                    self._deliver(action, now_ns)
                case RefuseFrames():
                    self.refused[action.reason] += action.count
                case StreamEnded():
                    assert action.stream_id not in self.streams_ended
                    self.streams_ended.append(action.stream_id)

    def warm_up_ended(self):
        """Whether the running job, which is over, had no frames; it leaves no other trace."""
        if self.running is None or not self.running.warm_up:
            return False
        self.under_way.clear()
        return True

    @property
    def running(self):
        return self.under_way[0] if self.under_way else None

    def _accept(self, action, now_ns):
        for frame in action.frames:
            assert frame.arrival_ns == now_ns
            assert (frame.stream_id, frame.seq) not in self.accepted
            assert frame.stream_id not in self.streams_ended
            self.accepted.add((frame.stream_id, frame.seq))
            self.batches.setdefault(frame.job, []).append(frame)

    def _drop(self, action, now_ns):
        gone = Counter(frame.job for frame in action.frames)
        failed = [job for job in self.under_way if action.frames == job.frames or (job, action.frames) == self.failing]
        if failed:
            assert action.moved == ()
            self.under_way.remove(failed[0])
            self.failing = (None, None)
        else:
            for job, source, target in action.moved:
                assert source > target
                self.batches[job][target] = self.batches[job][source]
            for job, count in gone.items():
                del self.batches[job][len(self.batches[job]) - count :]
                assert not set(self.batches[job]) & set(action.frames), "the holes were not closed"
                if not self.batches[job]:
                    del self.batches[job]
        if action.outcome == "expired" and action.reason != "too_late":
            assert all(frame.deadline_ns <= now_ns for frame in action.frames), "expired before its limit"
        for frame in action.frames:
            self._end(frame, action.outcome)

    def _retry(self, action):
        job = action.job
        assert action.indices == tuple(sorted(set(action.indices)))
        if job in self.under_way:
            self.failing = (job, tuple(f for i, f in enumerate(job.frames) if i not in action.indices))
            if not self.failing[1]:
                self.under_way.remove(job)
        else:
            assert list(job.frames) == self.batches.pop(job.id)
            assert len(action.frames) == len(job.frames)
        for frame, index in zip(action.frames, action.indices, strict=True):
            assert frame == replace(job.frames[index], job=frame.job)
            assert frame.job not in self.batches
            self.batches[frame.job] = [frame]

    def _start(self, action, now_ns):
        job = action.job
        assert len(self.under_way) == job.ahead, "one job at a time, and one that was sent ahead of its end"
        if job.warm_up:
            assert job.frames == ()
            self.under_way.append(job)
            return
        assert list(job.frames) == self.batches.pop(job.id), "frames stand where the driver has put them"
        assert job.release_ns <= now_ns
        assert {(f.stream_id) for f in job.frames}
        self.under_way.append(job)

    def _deliver(self, action, now_ns):
        self.under_way.remove(action.job)
        for frame, outcome in zip(action.job.frames, action.outcomes, strict=True):
            assert outcome == ("met" if now_ns <= frame.deadline_ns else "missed")
            self._end(frame, outcome)

    def _end(self, frame, outcome):
        name = (frame.stream_id, frame.seq)
        assert name in self.accepted
        assert name not in self.ended, "a frame ends once"
        self.ended[name] = outcome

    def check(self, view):
        """Hold the engine's books against what was carried out."""
        for stream in view.streams:
            assert stream.accepted == sum(stream.outcomes.values()) + stream.in_flight
        flying = sum(map(len, self.batches.values())) + sum(len(job.frames) for job in self.under_way)
        assert sum(model.in_flight for model in view.models.values()) == flying
        assert sum(model.accepted for model in view.models.values()) == len(self.accepted)
        ended = Counter()
        for model in view.models.values():
            assert model.accepted == sum(model.outcomes.values()) + model.in_flight
            ended.update(model.outcomes)
        assert +ended == Counter(self.ended.values())
        assert view.refused == self.refused
        assert [job for job in (view.running, view.sent_ahead) if job] == self.under_way
        waiting = sum(category.waiting for category in view.categories) + sum(len(job.frames) for job in view.ready)
        assert waiting == sum(map(len, self.batches.values()))
