"""The pure core: streams, windows, jobs and the engine that decides about them.

Rules of this package:

- No clock, no await, no I/O, no pixels: events and ``now_ns`` go in, actions come out. The same events at
  the same instants always give the same actions.
- Time is an integer of nanoseconds on one monotonic clock; names end in ``_ns``.
- Only the standard library and numpy are imported.

Reading order: `types`, `events`, `actions` and `verdict` (the nouns and the verbs), `profile` (how long a batch takes);
the path of a frame: `batch`, `batcher` (windows), `joints`, `edf` (the ready queues), `expiry`, `waiting` (these
together), `policing` and `intake` (what is taken), `dispatch` (what runs next), `device`, `books`, `endings`, `jobs`,
with `adaptation` and `retries`, `engine`; whether a stream fits: `plan_state`, `expected` and `pseudo_jobs` (what will
come), `schedulability` (Phase 1), `imitator` and `hyperperiod` (the exact tests), `sporadic`, `evidence`, `offers`,
`admission`; what follows from it: `plan`, `slots` (the order of promised work), `slot_rows`, `reservation` (whose
frames have a place), `guard`, `installation`, `course` and `promises` (putting a plan in force); what can be seen from
outside: `view`, `recording`, `log`.
"""
