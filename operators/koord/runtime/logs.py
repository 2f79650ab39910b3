"""Log formats: one line per record, as JSON or as text with key=value fields.

Messages are constants, and details are fields: ``log.info("Bound a pod", extra={"pod": key, "node":
name})``. Only plain values become fields, so that no whole object, with its spec or credentials,
gets into a log.
"""

import json
import logging
import sys
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from textwrap import indent
from typing import Any, Final, TextIO

from aiohttp.http_exceptions import HttpProcessingError
from typing_extensions import override

from koord.plain_text import escape, escape_line

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_KOPF_INTERNALS = frozenset({"k8s_skip", "settings"})
_KOPF_REFERENCE = "k8s_ref"
_REPEAT_SECONDS: Final = 60.0
log = logging.getLogger(__name__)


class LogFormat(StrEnum):
    """The formats."""

    JSON = "json"
    TEXT = "text"


def configure_logging(log_format: LogFormat, stream: TextIO | None = None) -> None:
    """Send all records of the process to ``stream`` (stderr) in one format."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format is LogFormat.JSON else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    logging.getLogger("aiohttp.server").addFilter(_is_ours)
    root.setLevel(logging.INFO)


def _is_ours(record: logging.LogRecord) -> bool:
    """Whether a record is not about a request that is no HTTP: strangers must not fill the log."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


class LastProblem(logging.Handler):
    """Remembers the last warning or error of the process, and when it was logged."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = ""
        self.at = ""

    @override
    def emit(self, record: logging.LogRecord) -> None:
        fields = (f"{key}={_quote(value)}" for key, value in fields_of(record).items())
        self.text = " ".join((record.getMessage(), *fields))
        self.at = _head_of(record)["time"]


class FailureLines:
    """Logs what loops have isolated: once a minute for each place in the code, with its traceback.

    However many objects fail there, and however often, they do not fill the log.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._logged: dict[tuple[str, str, str], float] = {}

    def report(self, loop: str, key: str, error: Exception) -> None:
        frames = traceback.extract_tb(error.__traceback__)
        place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
        at, now = (loop, type(error).__name__, place), self._clock()
        if now < self._logged.get(at, float("-inf")) + _REPEAT_SECONDS:
            return
        self._logged[at] = now
        log.error(
            "Left out an object after an unexpected error; others are not affected",
            exc_info=error,
            extra={"loop": loop, "object": key},
        )


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, message, then the fields."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        line = _head_of(record) | fields_of(record)
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return escape(json.dumps(line, ensure_ascii=False))


class TextFormatter(logging.Formatter):
    """``time LEVEL logger message key=value …``, then the lines of a traceback."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        head = _head_of(record)
        message = escape_line(head["message"])
        parts = [head["time"], f"{head['level']:<7}", head["logger"], message]
        parts += [f"{key}={_quote(value)}" for key, value in fields_of(record).items()]
        line = " ".join(parts)
        if not record.exc_info:
            return line
        # Indented: no line of an error can be taken for a record.
        return f"{line}\n{indent(escape(self.formatException(record.exc_info)), '  ')}"


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """Return the structured fields of a record: plain values, and Kopf's object reference."""
    fields: dict[str, Any] = {
        key: value
        for key, value in vars(record).items()
        if key not in _STANDARD
        and key not in _KOPF_INTERNALS
        and isinstance(value, str | int | float | None)
    }
    reference = getattr(record, _KOPF_REFERENCE, None)
    if isinstance(reference, dict):
        named = (reference.get("namespace"), reference.get("name"))
        fields["kind"] = reference.get("kind")
        fields["object"] = "/".join(str(part) for part in named if part)
    return fields


def _head_of(record: logging.LogRecord) -> dict[str, str]:
    time = datetime.fromtimestamp(record.created, UTC)
    return {
        "time": time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": record.levelname.lower(),
        "logger": record.name,
        "message": record.getMessage(),
    }


def _quote(value: object) -> str:
    text = str(value)
    is_plain = text.isprintable() and not set(text) & set(' "=')
    return text if text and is_plain else escape(json.dumps(text, ensure_ascii=False))
