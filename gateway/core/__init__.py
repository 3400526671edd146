"""The pure core: streams, windows, jobs and the engine that decides about them.

Rules of this package:

- No clock, no await, no I/O, no pixels: events and ``now_ns`` go in, actions come out. The same events at
  the same instants always give the same actions.
- Time is an integer of nanoseconds on one monotonic clock; names end in ``_ns``.
- Only the standard library and numpy are imported.

Reading order: `types`, `events` and `verdict` (the nouns and the verbs), `profile` (how long a batch takes); the
path of a frame: `batch`, `batcher` (windows), `edf` (the ready queue), `expiry`, `waiting` (these together), `device`,
`books`, `engine`; whether a stream fits: `plan_state`, `pseudo_jobs`, `schedulability`, `admission`; what can be
seen from outside: `view`, `recording`, `log`.
"""
