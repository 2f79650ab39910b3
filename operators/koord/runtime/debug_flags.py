"""The debug flags of Koordinator's scheduler, with its answers: ``PUT /debug/flags/NAME``.

They belong to the process that is asked. What was set ends after a while, and when another process
becomes the leader: nobody has to remember to turn it off. Who has set what is logged.
"""

import asyncio
import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

log = logging.getLogger(__name__)

VERBOSITY: Final = "v"
SCORES: Final = "s"
FAILURES: Final = "f"
DUMPS: Final = frozenset({"d", "db"})

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,64}")
_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "false", "FALSE", "False"})
_DEBUG_OF_OURS: Final = 3
_DEBUG_OF_ALL: Final = 5
_OURS: Final = "koord"
_BITS_OF_V: Final = 32
_BITS_OF_INT: Final = 64

PAGE: Final = """<html>
<head><title>/debug/flags/</title></head>
<body>
/debug/flags/<br>
<br>
<table>
<tr><td>v</td><td>verbosity of the log: 0 to 10</td></tr>
<tr><td>s</td><td>how many of the best nodes are logged with their scores; 0 for none</td></tr>
<tr><td>f</td><td>whether it is logged which nodes are refused, and why</td></tr>
<tr><td>d</td><td>whether refusals are dumped to the log</td></tr>
<tr><td>db</td><td>the same</td></tr>
</table>
<br>
curl -X PUT --data VALUE /debug/flags/NAME
</body>
</html>
"""
"""Of each path that is no flag."""


class FlagAnswer(NamedTuple):
    """A status of HTTP, and a line without its end."""

    status: int
    text: str


class _ParseError(ValueError):
    """As Go says it."""


def _parse_integer(function: str, bits: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not _INTEGER.fullmatch(text):
            raise _ParseError(_explain(function, text, "invalid syntax"))
        number, bound = int(text), 1 << bits - 1
        if not -bound <= number < bound:
            raise _ParseError(_explain(function, text, "value out of range"))
        return number

    return parse


def _parse_bool(text: str) -> int:
    if text not in _TRUE | _FALSE:
        raise _ParseError(_explain("strconv.ParseBool", text, "invalid syntax"))
    return int(text in _TRUE)


def _explain(function: str, text: str, why: str) -> str:
    return f"{function}: parsing {json.dumps(text, ensure_ascii=False)}: {why}"


_FLAGS: Final[Mapping[str, tuple[str, Callable[[str], int]]]] = {
    VERBOSITY: ("klog.logging.verbosity", _parse_integer("strconv.ParseInt", _BITS_OF_V)),
    SCORES: ("debugTopNScores", _parse_integer("strconv.Atoi", _BITS_OF_INT)),
    FAILURES: ("debugFilterFailure", _parse_bool),
    # Theirs names the wrong flag, too.
    **dict.fromkeys(sorted(DUMPS), ("debugFilterFailure", _parse_bool)),
}
"""Flag -> what its answers call it, and how its value is read."""


@dataclass(slots=True)
class DebugFlags:
    """The values of one process; all are 0 unless somebody has set them.

    Set in the event loop of the HTTP server, and read anywhere. ``note`` is called with the flag,
    its value, and who has set it.
    """

    seconds: float
    """After so long a flag is 0 again."""
    note: Callable[[str, str, str], None] = field(default=lambda *_: None)
    _values: dict[str, int] = field(default_factory=dict)
    _times: dict[str, int] = field(default_factory=dict)
    """How often a flag was set."""

    @staticmethod
    def knows(name: str) -> bool:
        return name in _FLAGS

    @property
    def top_scores(self) -> int:
        return max(0, self._values.get(SCORES, 0))

    @property
    def shows_failures(self) -> bool:
        return bool(self._values.get(FAILURES))

    @property
    def dumps(self) -> bool:
        return any(self._values.get(name) for name in DUMPS)

    def put(self, name: str, text: str, by: str) -> FlagAnswer:
        """Set a flag that is known."""
        title, parse = _FLAGS[name]
        try:
            value = parse(text)
        except _ParseError as error:
            return FlagAnswer(400, f"failed set {title} {text}: {error}")
        self._set(name, value, text, by)
        times = self._times[name] = self._times.get(name, 0) + 1
        asyncio.get_running_loop().call_later(self.seconds, self._expire, name, times)
        return FlagAnswer(200, f"successfully set {title} to {text}")

    def reset(self, why: str) -> None:
        """Set all flags that are set to 0."""
        for name in [name for name, value in self._values.items() if value]:
            self._set(name, 0, "0", why)

    def _expire(self, name: str, times: int) -> None:
        if self._times[name] == times and self._values[name]:
            self._set(name, 0, "0", "the end of its time")

    def _set(self, name: str, value: int, text: str, by: str) -> None:
        self._values[name] = value
        if name == VERBOSITY:
            set_verbosity(value)
        log.info("Set a debug flag", extra={"flag": name, "value": text, "by": by})
        self.note(name, text, by)


def set_verbosity(number: int) -> None:
    """Log in as much detail as a number of klog says: of our packages, or of all."""
    debug, info, inherited = logging.DEBUG, logging.INFO, logging.NOTSET
    logging.getLogger(_OURS).setLevel(debug if number >= _DEBUG_OF_OURS else inherited)
    logging.getLogger().setLevel(debug if number >= _DEBUG_OF_ALL else info)
