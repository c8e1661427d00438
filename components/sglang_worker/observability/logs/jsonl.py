"""One JSON object per line, with the field names of Dynamo's own JSON log."""

from __future__ import annotations

import json
import logging
from datetime import datetime, timezone
from typing import Any

_LEVELS = {"WARNING": "WARN", "CRITICAL": "ERROR", "NOTSET": "DEBUG"}
# What `logger.info(…, extra={…})` may add; Dynamo's names.
EXTRA = ("request_id", "trace_id", "span_id")


class JsonFormatter(logging.Formatter):
    """Total: a record that cannot be rendered still gives a line."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, tz=timezone.utc)
        line: dict[str, Any] = {
            "time": moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "level": _LEVELS.get(record.levelname, record.levelname),
            "file": record.pathname,
            "line": record.lineno,
            "target": record.name,
            "message": _message(record),
            "process": record.processName,
            "pid": record.process,
        }
        line.update({name: getattr(record, name) for name in EXTRA if hasattr(record, name)})
        if record.exc_info and record.exc_info[0] is not None:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        return json.dumps(line, default=str, ensure_ascii=False)


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except (TypeError, ValueError, KeyError) as error:
        return f"{record.msg!r} % {record.args!r}: {error}"
