"""Logging set-up: one event, one line, on standard error. Called once, where the process starts."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

import orjson

TEXT_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
#: Libraries whose INFO says nothing that ours does not.
QUIET = ("uvicorn.error", "uvicorn.access", "httpx", "asyncio")


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
