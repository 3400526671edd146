"""A worker's memory: models come and go in it as slowly and as unreliably as it is told.

It knows what is really there, and holds the engine to the rules: nothing is loaded twice, nothing runs that is not
there and warmed, nothing goes while it runs, and never is more held than the budget and its headroom.
"""

from collections import Counter
from dataclasses import dataclass

from gateway.core.actions import LoadModel, ModelChanged, StartJob, UnloadModel
from gateway.core.events import (
    JobFailed,
    JobFinished,
    LateLoadEnded,
    ModelLoaded,
    ModelLoadFailed,
    ModelUnloaded,
    ModelUnloadFailed,
    WorkerBack,
    WorkerLost,
)
from gateway.core.types import NS_PER_MS as MS
from gateway.core.types import ModelState


@dataclass
class Unreliable:
    """How loads and unloads go. Times in ms.

    Attributes:
        load, unload: At least, at most; where a model has times of its own (`Worker.most`), those are at most.
        leaks: The share of a model's memory that does not come back when it goes.
        fails: The chance that a load fails, in its time or at once.
        hangs: The chance that one takes all the time that it is given, which is `limit`, and up to as much again.
        stays: The chance that an unload comes to nothing.
        most: So many of all these at most, for each model; then all goes well.
    """

    load: tuple[int, int] = (1, 30)
    unload: tuple[int, int] = (0, 10)
    leaks: float = 0.0
    fails: float = 0.0
    hangs: float = 0.0
    stays: float = 0.0
    limit: int = 200
    most: int = 5


class Worker:
    """See the module's docstring.

    Args:
        rng: Of all draws.
        sizes: Weights of the models, in the budget's unit.
        budget, headroom: In it; None: there is none. Of models that are counted, one that is loaded anew is one.
        ways: How it behaves.
        most: The longest load and unload of a model, in ms.
        in_models: That is the budget's unit.
    """

    def __init__(self, rng, sizes, budget=None, headroom=0, ways=None, *, most=None, in_models=False):
        self.rng, self.sizes, self.budget, self.headroom, self.in_models = rng, sizes, budget, headroom, in_models
        self.ways = ways or Unreliable()
        self.most = most or {}
        self.leaked = self._told = 0
        self.state = {}
        self.warm = set()
        self.running = None
        self.counts = Counter()
        self.lost = False
        self._trouble = Counter()
        self._current = {}
        self._late = {}
        self._number = 0

    # ------------------------------------------------------------ what happens to it

    def carry_out(self, actions, now_ns):
        """Return ``(t_ns, number, event)`` of every operation that begins, for `ends` to be asked about later."""
        begun = []
        for action in actions:
            match action:
                case LoadModel():
                    begun += self._load(action, now_ns)
                case UnloadModel():
                    begun.append(self._unload(action, now_ns))
                case StartJob():
                    self._start(action.job)
                case ModelChanged(state=ModelState.RESIDENT):
                    assert self.state.get(action.model) in ("there", "anew"), f"{action.model} is not there"
                    self.warm.add(action.model)
        return begun

    def ends(self, number, event):
        """An operation is over; return whether the engine is told.

        If the worker was lost meanwhile it may be, for drivers race, but not while that is set up again.
        """
        model = event.model
        if isinstance(event, LateLoadEnded):
            return self._late_ends(model, number)
        if self._current.get(model) != number:
            return model not in self._current and not self.lost and self.rng.random() < 0.5
        del self._current[model]
        match event:
            case ModelLoaded():
                self.state[model] = "there"
            case ModelLoadFailed(lingers=True):
                self.state[model] = "anew" if self.state[model] == "anew" else "late"
            case ModelLoadFailed():
                if self.state[model] == "anew":
                    self.state[model] = "there"
                else:
                    del self.state[model]
            case ModelUnloaded():
                del self.state[model]
                self.warm.discard(model)
                self.leaked += int(self.sizes[model] * self.ways.leaks)
            case ModelUnloadFailed():
                self.state[model] = "there"
        return True

    def _late_ends(self, model, number):
        if self._late.get(model) != number:
            return False
        del self._late[model]
        if self.state[model] == "anew":
            self.state[model] = "there"
        else:
            del self.state[model]
        return True

    def called(self, model):
        """Whether a model is coming or going."""
        return model in self._current or model in self._late

    def find(self, model):
        """A model is there, and warm, when the worker is set up."""
        self.state[model] = "there"
        self.warm.add(model)

    def lose(self, model):
        """Somebody else unloads a model."""
        del self.state[model]
        self.warm.discard(model)

    def happen(self, event):
        """The engine is about to be told of this, which concerns more than one model, or a job."""
        match event:
            case JobFinished() | JobFailed():
                self.running = None
            case WorkerLost():
                self.lost, self.running = True, None
                self.leaked = self._told = 0
                self.state.clear()
                self.warm.clear()
                self._current.clear()
                self._late.clear()
            case WorkerBack():
                self.lost = False

    # ------------------------------------------------------------ what it is asked for

    def _load(self, action, now_ns):
        model = action.model
        self._may_begin(model)
        assert (self.state.get(model) == "there") == (action.reason == "reload"), f"{action}: {self.state.get(model)}"
        self.state[model] = "anew" if action.reason == "reload" else "coming"
        if action.reason != "reload":
            self.warm.discard(model)
        self._check_memory(action)
        self.counts["loads"] += 1
        self.counts[f"load {action.reason}"] += 1
        ways = self.ways
        takes = self._draw(ways.load, model, 0)
        event = ModelLoaded(model)
        if self._goes_wrong(model, ways.fails + ways.hangs):
            if self.rng.random() * (ways.fails + ways.hangs) < ways.hangs:
                return self._hang(model, now_ns)
            takes = self.rng.choice([0, takes])
            event = ModelLoadFailed(model, "it is broken")
        return [self._begin(model, now_ns + takes * MS, event)]

    def _hang(self, model, now_ns):
        limit_ns = now_ns + self.ways.limit * MS
        begun = self._begin(model, limit_ns, ModelLoadFailed(model, "timed out", lingers=True))
        self._late[model] = self._number = self._number + 1
        ends_ns = limit_ns + self.rng.randint(1, self.ways.limit) * MS
        return [begun, (ends_ns, self._number, LateLoadEnded(model))]

    def _unload(self, action, now_ns):
        model = action.model
        self._may_begin(model)
        assert self.state.get(model) == "there", f"{action}: {self.state.get(model)}"
        assert self.running is None or self.running.runs_as.model != model, f"{model} runs"
        self.state[model] = "going"
        self.counts[f"unload {action.reason}"] += 1
        event = ModelUnloaded(model)
        takes = self._draw(self.ways.unload, model, 1)
        if self._goes_wrong(model, self.ways.stays):
            event, takes = ModelUnloadFailed(model, "it is still there"), self.ways.limit
        return self._begin(model, now_ns + takes * MS, event)

    def _start(self, job):
        model = job.category.model
        self.running = job
        if self.budget is None and self.state.get(model) is None:
            return  # it counts as there, or the runtime answers at once
        assert self.state.get(model) in ("there", "anew"), f"{model} is {self.state.get(model)}, and runs"
        assert job.warm_up or model in self.warm, f"{model} runs before it is warm"

    def _may_begin(self, model):
        assert not self.lost, "the worker is lost"
        assert not self.called(model), f"{model} comes or goes already"

    def _begin(self, model, t_ns, event):
        self._number += 1
        self._current[model] = self._number
        return t_ns, self._number, event

    def _draw(self, times, model, kind):
        least, most = times
        if model in self.most:
            most = self.most[model][kind]
        return self.rng.randint(min(least, most), most)

    def _goes_wrong(self, model, chance):
        if self._trouble[model] >= self.ways.most or self.rng.random() >= chance:
            return False
        self._trouble[model] += 1
        return True

    def _check_memory(self, action):
        if self.budget is None:
            return
        held = self.held() + self._told
        going = sum(self.sizes[model] for model, state in self.state.items() if state == "going")
        assert held - going <= self.budget, f"{action}: {held} held, of {self.budget}: {self.state}"
        assert held <= self.budget + self.headroom, f"{action}: {held} held, of {self.budget}: {self.state}"

    def measure(self):
        """Return what it holds in all, as it would be measured; from now on it is known what does not come back."""
        self._told = self.leaked
        return 1_000 + self.held() + self.leaked

    @property
    def quiet(self):
        """Whether no model comes or goes."""
        return not self._current and not self.lost

    def held(self):
        """What models hold."""
        twice = 1 if self.in_models else 2
        return sum(self.sizes[model] * (twice if state == "anew" else 1) for model, state in self.state.items())
