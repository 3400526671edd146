"""Swapping decided at run time, as THEORY has it: EDF that skips what is not in memory, LRU, prefetch. Whole ticks."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Work:
    """One job: its first frame comes at `arrival`, its window ends at `release`."""

    model: str
    arrival: int
    release: int
    deadline: int
    execution: int


def run(jobs, loads, *, room, unload=2, prefetch=True, resident=()):
    """Return by how much each job is late, in order of `jobs`; at most 0: in time.

    A model is loaded for the oldest frame that waits, as soon as there is room: with `prefetch` from its first frame
    on, else from the joint. The victim is idle, not waited for, and was used least recently.
    """
    state = dict.fromkeys(resident, "resident")
    used = dict.fromkeys(loads, -1)
    ends, calls, running, left = {}, {}, None, list(range(len(jobs)))
    t = 0
    while left or running is not None:
        _settle(state, calls, t)
        if running is not None and ends[running] <= t:
            used[jobs[running].model], running = t, None
        waits = sorted(left, key=lambda i: (jobs[i].arrival, i))
        wanted = [jobs[i].model for i in waits if t >= (jobs[i].arrival if prefetch else jobs[i].release)]
        for model in dict.fromkeys(wanted):
            if state.get(model):
                continue
            held = [m for m in state if state[m]]
            if len(held) < room:
                state[model], calls[model] = "loading", t + loads[model]
            elif not any(state[m] == "unloading" for m in held):
                busy = None if running is None else jobs[running].model
                idle = [m for m in held if state[m] == "resident" and m != busy]
                victim = _victim(idle, wanted, used)
                if victim is not None:
                    state[victim], calls[victim] = "unloading", t + unload
        if running is None:
            ready = [i for i in left if jobs[i].release <= t and state.get(jobs[i].model) == "resident"]
            if ready:
                running = min(ready, key=lambda i: (jobs[i].deadline, jobs[i].release, i))
                left.remove(running)
                ends[running] = t + jobs[running].execution
        t += 1
    return [ends[i] - job.deadline for i, job in enumerate(jobs)]


def _settle(state, calls, t):
    """Loads and unloads end."""
    for model in [model for model, end in calls.items() if end <= t]:
        del calls[model]
        state[model] = "resident" if state[model] == "loading" else None


def _victim(idle, wanted, used):
    """Of the models that are idle the one that was used least recently: best one that nobody waits for."""
    idle = [m for m in idle if m not in wanted] or [m for m in idle if m not in wanted[:1]]
    return min(idle, key=lambda m: (used[m], m), default=None)
