"""Decodes JSON that users write into annotations, wherever the standard decoder is used for it.

The API server stores only valid Unicode, and requests to it can hold nothing else. But JSON inside
an annotation may spell half of a surrogate pair as an escape. Such a text would fail only later,
where it is quoted in a condition or an event, so it is refused at this edge. Where msgspec decodes,
it refuses such texts itself.
"""

import json
import re
from collections.abc import Callable
from typing import Any, Final

from koord.plain_text import find_half_pair

MAX_TEXT: Final = 64 * 1024
"""Longer texts are rejected unread; all annotations of an object together have 256 KiB."""
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")

Pairs = list[tuple[str, Any]]


def load_json(text: str, join_pairs: Callable[[Pairs], dict[str, Any]] = dict) -> Any:
    """Decode a JSON text.

    ``join_pairs`` makes a mapping of its pairs, in which keys may be duplicate. Raises ValueError
    or RecursionError.
    """
    if len(text) > MAX_TEXT:
        raise ValueError(f"it is longer than {MAX_TEXT} characters")
    value = json.loads(text, object_pairs_hook=join_pairs, parse_constant=_refuse_constant)
    if _SURROGATE.search(text):
        refuse_half_pairs(value)
    return value


def refuse_half_pairs(value: Any) -> None:
    """Raise ValueError if a text in a decoded value is no Unicode."""
    half = find_half_pair(json.dumps(value, ensure_ascii=False))
    if half:
        raise ValueError(f"{half} is only half of a surrogate pair")


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")
