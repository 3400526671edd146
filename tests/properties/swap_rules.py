"""The rules of the swap region, apart from the engine: a simulator that shares no code with it. Whole ticks.

Turns in order of deadline, unload, load, first executions, batches; plain EDF on the device; and an adversary who loads
ahead, loads other models and sends best effort whenever the rules let him.
"""

import random
from dataclasses import dataclass


@dataclass
class Group:
    """A category: W, E by batch size, its arrivals, and d if its model takes turns (None: it stays)."""

    name: str
    model: str
    window: int
    table: list
    arrivals: list
    local: int | None = None


@dataclass
class Moods:
    """How likely the adversary does what, in each tick in which he may; and how long things take."""

    best_effort: float
    elsewhere: float
    ahead: float
    early: float
    full: float


class SwapRules:
    """One run. `late` has every window that misses what it was promised."""

    def __init__(self, groups, loads, unloads, warm_ups, rng, moods, *, longest_job, longest_call):
        self.groups = {group.name: group for group in groups}
        self.loads, self.unloads, self.warm_ups = loads, unloads, warm_ups
        self.rng, self.moods = rng, moods
        self.longest_job, self.longest_call = longest_job, longest_call
        self.joint = {group.name: group.window for group in groups}
        self.open = {group.name: [] for group in groups}
        self.sent = dict.fromkeys(self.groups, 0)
        self.ready, self.turns, self.late = [], [], []
        self.turn = self.call = self.running = self.there = None
        self.lazy = []
        self.order = self.done = self.swaps = 0

    def takes(self, planned):
        return planned if self.rng.random() < self.moods.full else self.rng.randint(min(1, planned), planned)

    def run(self, until):
        for t in range(until):
            self.finish(t)
            self.close(t)
            self.region(t)
            self.dispatch(t)
            if self.late:
                break
        return self

    # ------------------------------------------------------------ what ends

    def finish(self, t):
        if self.running is not None and self.running["end"] <= t:
            job, self.running = self.running, None
            if job["due"] is not None and t > job["due"]:
                self.late.append((t, job))
            if job["turn"] is not None:
                job["turn"]["left"] -= 1
        if self.call is not None and self.call[0] <= t:
            _, kind, model = self.call
            self.call = None
            if kind == "unload":
                self.there, self.lazy = None, []
            elif kind == "load":
                self.there, self.lazy, self.swaps = model, list(self.warm_ups[model]), self.swaps + 1

    def close(self, t):
        """Windows end; a frame of this instant belongs to the next."""
        for name, group in self.groups.items():
            if self.joint[name] <= t:
                frames, self.open[name] = self.open[name], []
                due = self.joint[name] + group.window
                if frames and group.local is not None:
                    self.order += 1
                    self.turns.append((due, self.order, name, len(frames)))
                elif frames:
                    self.chunks(group, len(frames), due, due, None)
                self.joint[name] += group.window
            while self.sent[name] < len(group.arrivals) and group.arrivals[self.sent[name]] <= t:
                self.open[name].append(t)
                self.sent[name] += 1

    def chunks(self, group, frames, deadline, due, turn):
        most = len(group.table) - 1
        while frames:
            size = min(frames, most)
            frames -= size
            self.put(group, group.table[size], deadline, due, turn)

    def put(self, group, planned, deadline, due, turn):
        self.order += 1
        job = {"planned": planned, "due": due, "turn": turn, "model": group.model}
        self.ready.append((deadline, self.order, job))
        if turn is not None:
            turn["left"] += 1

    # ------------------------------------------------------------ the region

    def busy(self):
        """Whether something of the model that is there runs, which so cannot be unloaded."""
        return self.running is not None and self.running["model"] == self.there

    def region(self, t):
        if self.turn is not None and self.turn["stage"] == "run" and not self.turn["left"]:
            self.turn, self.done = None, self.done + 1
        if self.turn is None and self.turns:
            due, _, name, frames = min(self.turns)
            self.turns.remove(min(self.turns))
            self.turn = {"group": self.groups[name], "frames": frames, "due": due, "stage": "swap", "left": 0}
        if self.turn is not None:
            self.advance(t)
        elif self.call is None and not self.busy():
            self.adversary(t)

    def advance(self, t):
        turn, group = self.turn, self.turn["group"]
        if turn["stage"] == "swap" and self.call is None:
            if self.there == group.model:
                turn["stage"], turn["local"] = "warm", t + group.local
                if turn["local"] > turn["due"]:
                    self.late.append((t, turn))
                for planned in self.lazy:
                    self.put(group, planned, turn["local"], None, turn)
                self.lazy = []
                if self.running is not None and self.running["turn"] is None and self.running["model"] == group.model:
                    self.running["turn"], turn["left"] = turn, turn["left"] + 1
            elif self.there is None:
                self.call = (t + self.takes(self.loads[group.model]), "load", group.model)
            elif not self.busy():
                self.call = (t + self.takes(self.unloads[self.there]), "unload", self.there)
        if turn["stage"] == "warm" and not turn["left"]:
            turn["stage"] = "run"
            self.chunks(group, turn["frames"], turn["local"], turn["due"], turn)

    def adversary(self, t):
        """No turn waits: a call for another model, or one ahead of its time."""
        rng = self.rng
        if self.longest_call and rng.random() < self.moods.elsewhere:
            self.call = (t + self.takes(self.longest_call), "elsewhere", None)
        elif rng.random() < self.moods.ahead:
            wanted = [g.model for g in self.groups.values() if g.local is not None and g.model != self.there]
            if wanted and self.there is not None:
                self.call = (t + self.takes(self.unloads[self.there]), "unload", self.there)
            elif wanted:
                model = rng.choice(wanted)
                self.call = (t + self.takes(self.loads[model]), "load", model)

    # ------------------------------------------------------------ the device

    def dispatch(self, t):
        if self.running is not None:
            return
        free = self.turn is None and not self.turns and self.call is None
        if self.ready:
            first = min(self.ready, key=lambda entry: entry[:2])
            self.ready.remove(first)
            self.start(t, first[2])
        elif free and self.lazy:
            self.start(t, {"planned": self.lazy.pop(0), "due": None, "turn": None, "model": self.there})
        elif self.rng.random() < self.moods.early:
            self.start_early(t, free)
        elif self.longest_job and self.rng.random() < self.moods.best_effort:
            model = self.there if free and self.rng.random() < 0.5 else None
            self.start(t, {"planned": self.longest_job, "due": None, "turn": None, "model": model})

    def start_early(self, t, free):
        for name, group in self.groups.items():
            if self.open[name] and (group.local is None or (free and self.there == group.model)):
                most = len(group.table) - 1
                taken, self.open[name] = self.open[name][:most], self.open[name][most:]
                due = taken[0] + 2 * group.window
                self.start(t, {"planned": group.table[len(taken)], "due": due, "turn": None, "model": group.model})
                return

    def start(self, t, job):
        job["end"] = t + self.takes(job["planned"])
        self.running = job


def some_moods(seed):
    """Draw what the adversary likes."""
    rng = random.Random(seed)
    return Moods(*(rng.choice([0, 0.1, 1]) for _ in range(4)), full=rng.choice([0, 0.8, 1]))
