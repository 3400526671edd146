"""An engine with a memory budget, moved by hand; the worker's words for its loads are given by hand too."""

from gateway.core.actions import LoadModel, ModelChanged, ModelRefused, StartJob, UnloadModel
from gateway.core.config import ResidencyConfig
from gateway.core.events import (
    HoldModel,
    JobFailed,
    ModelLoaded,
    ModelLoadFailed,
    ModelUnloaded,
    RegisterStream,
)
from gateway.core.profile import ModelEntry
from gateway.core.types import ModelState, ServiceClass
from tests.core.factories import Drive, every, make_profile, make_spec

#: Ten seconds: nothing expires by accident.
LONG = 10_000


def sized(profile, **sizes):
    """The profile with the bytes of its models; loads take 100 ms, unloads 20."""
    entries = tuple(ModelEntry(name, "1", 100, 20, size) for name, size in sizes.items())
    return type(profile)(profile.entries, entries)


class Models(Drive):
    """Models a to f, 10 ms a frame, best-effort streams of the same names; `ask` names the calls that are under way."""

    def __init__(self, profile=None, *, streams="abcdef", **residency):
        residency = {"interference": 1, "warm_up_factor": 1} | residency
        config = {name: residency.pop(name) for name in ["early_dispatch"] if name in residency}
        profile = profile or make_profile(**{name: [10] for name in "abcdef"})
        super().__init__(profile, residency=ResidencyConfig(**residency), **config)
        for name in streams:
            self.stream(name, name)

    def stream(self, name, model, deadline=LONG, t=0, **spec):
        spec = {"service_class": ServiceClass.BEST_EFFORT} | spec
        return self.at(t, RegisterStream(name, make_spec(model=model, deadline=deadline, **spec)))

    def run(self, t):
        """End what runs at `t`."""
        return self.finish(t, self.engine.snapshot().running)

    def loaded(self, t, *models, warm=True):
        return self.at(t, *(ModelLoaded(model, warm) for model in models))

    def failed(self, t, model, why="broken", *, lingers=False):
        return self.at(t, ModelLoadFailed(model, why, lingers))

    def gone(self, t, *models):
        return self.at(t, *(ModelUnloaded(model) for model in models))

    def hold(self, t, model, holder="h"):
        return self.at(t, HoldModel(model, holder))

    def view(self, model):
        return next(view for view in self.engine.snapshot().residency if view.model == model)

    def states(self):
        """The models of each state but absent, in order of name."""
        found = {}
        for view in self.engine.snapshot().residency:
            if view.state is not ModelState.ABSENT:
                found[view.state.value] = found.get(view.state.value, "") + view.model
        return found

    @property
    def held(self):
        return self.engine.snapshot().memory.held

    def broken(self, t):
        return self.at(t, JobFailed(self.engine.snapshot().running.id, "broken"))


def calls(actions):
    """``+a`` for a load of a, ``-a`` for its unload, ``a`` for a job of it, ``~a`` for a first execution."""
    found = []
    for action in actions:
        match action:
            case LoadModel():
                found.append(f"+{action.model}")
            case UnloadModel():
                found.append(f"-{action.model}")
            case StartJob():
                found.append(f"{'~' * bool(action.job.warm_up)}{action.job.category.model}")
    return " ".join(found)


def reasons(actions, kind=LoadModel):
    return [action.reason for action in every(actions, kind)]


def changes(actions):
    return [(action.model, action.state.value) for action in every(actions, ModelChanged)]


def refusals(actions):
    return [(action.model, action.reason) for action in every(actions, ModelRefused)]
