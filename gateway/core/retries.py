"""A refused batch: each of its frames is tried again alone, and that tells whose fault it was.

Triton refuses a batch as a whole, whichever of its frames it could not digest. So each frame whose deadline allows it
goes once more, by itself, when no promise is touched. Then

- one of them is refused alone: its stream is *suspect*, and the others were innocent. Further frames of a suspect
  stream go alone and without a promise, until one of them is answered; nobody else meets them any more.
- all of them are answered: it is batches that the model cannot take. Twice in a row, and the category is limited to
  jobs of one frame (`BatchLimited`).

Of a batch that was scaled down (`gateway.core.adaptation`) it is the small category that was refused. Second tries run
as they are, so a small job of one frame is tried again too: if it is answered then, it is the small shape that the
model cannot take.

Frames that cannot be tried again in time tell nothing for certain. A stream that has lost frames to three refused
batches in a row is taken for suspect all the same: one of its frames goes without a promise, and clears it if it is
innocent. And refused batches of which only some frames were answered count half.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from gateway.core import singles
from gateway.core.actions import Action, DeliverFrames, DropFrames, RetryFrames
from gateway.core.batch import Batch
from gateway.core.books import ANSWERED, SUSPECT, Ledger
from gateway.core.profile import Profile
from gateway.core.types import Category, Frame, Job, OnLate, Outcome
from gateway.core.waiting import Waiting

#: What a refused batch counts whose frames were all answered alone, and one of which only some were.
_ALL, _SOME = 2, 1
#: From this sum on it is the batches that are at fault.
_ENOUGH = 4
#: The reason of the limit.
BATCHES_FAIL = "batches were refused whose frames were answered one by one"


@dataclass(slots=True)
class _Trial:
    """One refused batch whose frames are under way again.

    Attributes:
        category: In which the batch was executed.
        left: Frames whose second try has not ended.
        whole: Whether every frame of the batch has been tried again.
        answered, guilty: How those ended that have.
        blamed: Streams of whose frames some ended without a second try.
    """

    category: Category
    left: int
    whole: bool
    answered: int = 0
    guilty: int = 0
    blamed: set[str] = field(default_factory=set)


class Retries:
    """The trials of one engine, and what they have shown so far."""

    def __init__(self, waiting: Waiting, ledger: Ledger) -> None:
        self._waiting = waiting
        self._ledger = ledger
        self._trials: dict[int, _Trial] = {}
        self._blame: dict[Category, int] = {}

    def refused(self, job: Job, profile: Profile, now_ns: int) -> RetryFrames | None:
        """Try again what can be tried of a job that was refused; None: nothing can, and all its frames have failed.

        Args:
            job: It has ended. Of a single frame that ran as it is it is known whose fault it was.
            profile: Execution times.
            now_ns: The instant.
        """
        if len(job.frames) == 1 and job.small is None:
            self._ledger.streams[job.frames[0].stream_id].blamed = SUSPECT
            return None
        table = profile.table(job.category)
        end_ns = now_ns + table[1]
        again = [i for i, frame in enumerate(job.frames) if _can_wait(frame, end_ns)]
        trial = _Trial(job.runs_as, left=len(again), whole=len(again) == len(job.frames))
        for frame in job.frames:
            if not _can_wait(frame, end_ns):
                self._blame_stream(trial, frame)
        if not again:
            return None
        frames = tuple([singles.retry(self._waiting, job.frames[i], job.category, table, now_ns) for i in again])
        for frame in frames:
            self._ledger.renew(frame)
            self._trials[frame.job] = trial
        return RetryFrames(job, frames, tuple(again))

    @property
    def wondering(self) -> bool:
        """Whether anything is to be learnt from how frames end."""
        return bool(self._trials or self._blame)

    def is_second(self, job_id: int) -> bool:
        """Whether a batch is a second try."""
        return job_id in self._trials

    def learn(self, actions: Iterable[Action]) -> Category | None:
        """Look at how frames have ended; return a category whose batches have turned out to be at fault."""
        found = None
        for action in actions:
            if isinstance(action, DropFrames):
                for frame in action.frames:
                    found = self._ended(frame, action.outcome) or found
            elif isinstance(action, DeliverFrames):
                for frame, outcome in zip(action.job.frames, action.outcomes, strict=True):
                    found = self._ended(frame, outcome) or found
                if len(action.job.frames) > 1 or action.job.small is not None:
                    self._blame.pop(action.job.runs_as, None)
        return found

    def _ended(self, frame: Frame, outcome: Outcome) -> Category | None:
        trial = self._trials.pop(frame.job, None)
        if trial is None:
            return None
        self._note(trial, frame, outcome)
        return self._judge(trial)

    def _note(self, trial: _Trial, frame: Frame, outcome: Outcome) -> None:
        trial.left -= 1
        if outcome in ANSWERED:
            trial.answered += 1
        elif outcome is Outcome.FAILED:
            trial.guilty += 1
        else:
            trial.whole = False
            if outcome is Outcome.EXPIRED:
                self._blame_stream(trial, frame)

    def _blame_stream(self, trial: _Trial, frame: Frame) -> None:
        """A frame of a refused batch ends without a second try: its stream may be the guilty one."""
        stream = self._ledger.streams.get(frame.stream_id)
        if stream is not None and frame.stream_id not in trial.blamed:
            trial.blamed.add(frame.stream_id)
            stream.blamed += 1

    def _judge(self, trial: _Trial) -> Category | None:
        if trial.guilty:
            self._blame.pop(trial.category, None)
        elif not trial.left and trial.answered:
            blame = self._blame.get(trial.category, 0) + (_ALL if trial.whole else _SOME)
            self._blame[trial.category] = blame
            if blame >= _ENOUGH:
                del self._blame[trial.category]
                return trial.category
        return None


def split(waiting: Waiting, ledger: Ledger, category: Category, profile: Profile) -> list[RetryFrames]:
    """Let batches of `category`, of either service class, hold one frame, those that wait among them."""
    found: list[RetryFrames] = []
    for batcher in waiting.batchers.values():
        if replace(batcher.category, service_class=category.service_class) != category:
            continue
        found += [
            _handed_over(ledger, batch, parts, batcher.joint_ns)
            for batch, parts in singles.split(waiting, batcher, profile.table(category))
        ]
    return found


def shorten(waiting: Waiting, ledger: Ledger, now_ns: int) -> list[RetryFrames]:
    """Let batches without a promise hold one frame that are longer than what may hold up promised work now.

    They were formed when more was allowed. As they are they would never find their turn.
    """
    return [_handed_over(ledger, batch, parts, now_ns) for batch, parts in singles.shorten(waiting, now_ns)]


def _handed_over(ledger: Ledger, batch: Batch, parts: list[Batch], joint_ns: int) -> RetryFrames:
    """The frames of a batch that has not started are in `parts` now."""
    frames = tuple([part.frames[0] for part in parts])
    for frame in frames:
        ledger.renew(frame)
    job = Job(
        batch.id,
        batch.category,
        tuple(batch.frames),
        joint_ns if batch.release_ns is None else batch.release_ns,
        batch.earliest_ns if batch.release_ns is None else batch.deadline_ns,
        batch.table[len(frames)],
    )
    return RetryFrames(job, frames, tuple(range(len(frames))), refused=False)


def _can_wait(frame: Frame, end_ns: int) -> bool:
    """Whether it is worth while to have an answer to `frame` at `end_ns`."""
    return end_ns <= frame.deadline_ns or frame.on_late is OnLate.SERVE
