"""Processes that take HTTP and WebSockets off the scheduler's hands: ``framegate serve --ingest-workers N``.

::

    clients ──> ingest process 0 ──┬─ frames ─────> staging 0 ─┐ copied into the batch
            ──> ingest process 1 ──┤               staging 1 ─┤
                                   ├─ descriptors, results ────┴─> scheduler: engine, arena, Triton
                                   └─ everything else, as HTTP over a Unix socket ──> its application

The scheduler's side is `server`, `worker`, `hub`, `scheduler_link` and `figures`; an ingest process is `process`,
`app`, `remote`, `ingest_link`, `hot`, `proxy` and `upstream`. Both know `wire` and `staging`.
"""
