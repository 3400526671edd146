"""The pure core: streams, windows, jobs and the engine that decides about them.

Rules of this package:

- No clock, no await, no I/O, no pixels: events and ``now_ns`` go in, actions come out. The same events at
  the same instants always give the same actions.
- Time is an integer of nanoseconds on one monotonic clock; names end in ``_ns``.
- Only the standard library and numpy are imported.

Reading order: `types` and `events` (the nouns and the verbs), `profile` (how long a batch takes), `batch`
and `batcher` (windows), `edf` (the ready queue), `expiry`, `books`, `engine` (puts them together); then
`plan_state`, `pseudo_jobs`, `schedulability`, `admission` and `offers` (will this camera fit?).
"""
