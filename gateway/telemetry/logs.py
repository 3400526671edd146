"""Logging set-up: one event, one line, on standard error. Called once, where the process starts.

Under ``framegate serve`` no log call writes anything itself: a terminal that is stopped, or a pipe that nobody reads,
would stop whoever writes to it, and that is the event loop. Lines go through a bounded queue to a thread (`LogQueue`).
"""

from __future__ import annotations

import copy
import logging
import queue
import sys
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from logging.handlers import QueueHandler
from types import TracebackType
from typing import Self, TextIO

import orjson

TEXT_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
#: Libraries whose INFO says nothing that ours does not. (`server.access_log` turns ``uvicorn.access`` on and off.)
QUIET = ("uvicorn.error", "httpx", "asyncio")
#: How long the end of the process waits for lines to be written.
CLOSE_S = 2.0


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time (UTC), level, logger, message, traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return orjson.dumps(line).decode()


def configure(level: str, log_format: str, stream: TextIO | None = None) -> None:
    """Send all logging to `stream` (standard error), from `level` on, as ``text`` or ``json``."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else logging.Formatter(TEXT_FORMAT))
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    for name in QUIET:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))


class LogQueue(QueueHandler):
    """Within this context, a thread writes what is logged, by the handlers that the root logger had.

    Args:
        length: Lines that may wait. Beyond it they are dropped, and the log says so where they are missing.

    Attributes:
        dropped: How many.
    """

    # Not `queue.Queue`: a line can be logged by a destructor, in the middle of putting another one into the queue.
    queue: queue.SimpleQueue[logging.LogRecord | None]

    def __init__(self, length: int) -> None:
        super().__init__(queue.SimpleQueue())
        self.dropped = 0
        self._length = length
        self._said = 0
        self._handlers: Sequence[logging.Handler] = ()
        self._thread = threading.Thread(target=self._write_all, name="log", daemon=True)

    def __enter__(self) -> Self:
        """Stand before the root logger's handlers."""
        root = logging.getLogger()
        self._handlers = list(root.handlers)
        root.handlers[:] = [self]
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Have written what is left, unless it takes too long, and let handlers be called directly again."""
        logging.getLogger().handlers[:] = self._handlers
        self.queue.put(None)
        self._thread.join(CLOSE_S)

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """Return a copy that does not change any more; its traceback is written out by the thread."""
        record = copy.copy(record)
        record.msg, record.args = record.getMessage(), None
        return record

    def enqueue(self, record: logging.LogRecord) -> None:
        """Take a record. Never waits."""
        if self.queue.qsize() < self._length:
            self.queue.put(record)
        else:
            self.dropped += 1

    def _write_all(self) -> None:
        while (record := self.queue.get()) is not None:
            self._write(record)
            if self.dropped > self._said:
                self._say_dropped()

    def _say_dropped(self) -> None:
        missing, self._said = self.dropped - self._said, self.dropped
        text = f"{missing} lines are missing here: they came faster than they could be written"
        self._write(logging.LogRecord(__name__, logging.WARNING, __file__, 0, text, None, None))

    def _write(self, record: logging.LogRecord) -> None:
        for handler in self._handlers:
            if record.levelno >= handler.level:
                handler.handle(record)
