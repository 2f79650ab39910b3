r"""Makes text that anybody may have written harmless where it is shown: here and nowhere else.

Annotations, labels and names of tenants reach terminals, pictures, logs, conditions and events.
Escape sequences would steer the terminal of the reader, marks of direction would turn lines around,
line breaks would forge lines of a log, and halves of surrogate pairs cannot be encoded at all. So
what is not printable is written as JSON writes it: ``\u001b``.

Whatever prints uses ``escape``, for JSON documents too, whose meaning stays; what quotes strangers
within a sentence or a cell uses ``escape_line``.
"""

import json
import re
from typing import Final
from unicodedata import category

_LINE_OR_TAB: Final = "\n\t"
_SURROGATES: Final = re.compile("[\ud800-\udfff]")


def escape(text: str) -> str:
    """Escape what is not printable, except line breaks and tabs."""
    return text if text.isprintable() else _escape_lines(text)


def escape_line(text: str) -> str:
    """Escape what is not printable, line breaks and tabs, too: it stays one line."""
    if text.isprintable():
        return text
    return "".join(name if _is_shown(name) else _code(name) for name in text)


def is_plain(text: str) -> bool:
    """Whether there is nothing to escape."""
    return escape(text) == text


def find_half_pair(text: str) -> str:
    """Return the first half of a surrogate pair, escaped; empty for text that is Unicode."""
    surrogate = _SURROGATES.search(text)
    return _code(surrogate[0]) if surrogate else ""


def _escape_lines(text: str) -> str:
    lines = text.split("\n")
    return "\n".join(
        line if line.isprintable() else "".join(map(_escape_one, line)) for line in lines
    )


def _escape_one(character: str) -> str:
    return character if _is_shown(character) or character in _LINE_OR_TAB else _code(character)


def _is_shown(character: str) -> bool:
    return character.isprintable() or category(character) == "Zs"


def _code(character: str) -> str:
    return json.dumps(character)[1:-1]
