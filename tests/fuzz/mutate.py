"""Mutates JSON objects: types, sizes, numbers, texts, nesting, duplicate keys, broken bytes.

Annotations with JSON in them are mutated inside, too.
"""

import json
import random
from typing import Any

TEXTS = (
    "",
    " ",
    "a" * 300,
    "\x00",
    "é漢😀",
    "\ud800",
    "a,b/c",
    "NaN",
    "Infinity",
    "null",
    "true",
    "[]",
    "{",
    "ns/g",
    "2025-01-01T00:00:00",
    "0001-01-01T00:00:00Z",
    "0001-01-01T00:00:00",
    "9999-12-31T23:59:59Z",
    "2025-01-01T00:00:00+23:59",
    # quantities and durations
    "1e3",
    "1e999999999",
    "-1",
    "+5",
    "0x10",
    "1Ei",
    "9999999999999999999999Ei",
    ".5",
    "5.",
    "1.5.5",
    "1m1m",
    "1h30",
    "99999999999999h",
    "٣",
    "1_000",
    "n0",
    "default",
    "In",
)
NUMBERS = (0, -1, 1, 2**31, -(2**31) - 1, 2**53 + 1, 2**63, -(2**63) - 1, 2**64, 10**40, 1.5, 1e308)
DEEP = 40
MAX_SIZE = 50_000


class Mutator:
    """Makes mutants from samples, repeatably."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._room = 0

    def mutate(self, sample: str) -> bytes:
        """Return the bytes of a mutant of a JSON text; one in thirty is no JSON any more."""
        rng, self._room = self._rng, MAX_SIZE
        body = json.loads(sample)
        for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
            body = self._change_somewhere(body)
        text = json.dumps(body, ensure_ascii=rng.random() < 0.9)
        if rng.random() < 0.05:
            text = self._repeat_key(text)
        raw = text.encode("utf-8", "surrogatepass")
        return self._break(raw) if rng.random() < 1 / 30 else raw

    def _change_somewhere(self, body: Any) -> Any:
        """Walk down at random and change what is there."""
        holder, key = None, None
        value = body
        while value and isinstance(value, dict | list) and self._rng.random() < 0.85:
            holder = value
            key = (
                self._rng.choice(list(value))
                if isinstance(value, dict)
                else self._rng.randrange(len(value))
            )
            value = value[key]
        if holder is None:
            return self._change(body)
        if isinstance(holder, dict) and self._rng.random() < 0.2:
            self._change_keys(holder, key)
        else:
            holder[key] = self._change(value)
        return body

    def _change_keys(self, holder: dict[str, Any], key: str) -> None:
        value = holder.pop(key)
        if self._rng.random() < 0.6:
            holder[self._rng.choice((*TEXTS, key.upper()))] = value

    def _change(self, value: Any) -> Any:  # noqa: PLR0911 - one per sort of change
        rng = self._rng
        if isinstance(value, str) and value[:1] in {"{", "["} and rng.random() < 0.8:
            return self._change_inside(value)
        if isinstance(value, list) and value and rng.random() < 0.6:
            return self._change_list(value)
        if isinstance(value, dict) and value and self._room and rng.random() < 0.4:
            times = self._times(value)
            more = {f"{key}{at}": one for key, one in value.items() for at in range(times)}
            return _unshare(value | more)
        kind = rng.randrange(8)
        if kind < 3:
            text = rng.choice(TEXTS)
            return text * self._times(text) if rng.random() < 0.1 else text
        if kind < 5:
            return rng.choice(NUMBERS)
        if kind == 5:
            return rng.choice((None, True, False, [], {}, [None], [[]], {"": None}))
        return self._nest(value) if kind == 6 else value

    def _change_inside(self, text: str) -> str:
        try:
            return json.dumps(self._change_somewhere(json.loads(text)))
        except (ValueError, RecursionError):
            return text[: self._rng.randrange(len(text) + 1)]

    def _change_list(self, value: list[Any]) -> list[Any]:
        rng = self._rng
        kind = rng.randrange(4)
        if kind == 0:
            return _unshare(value * rng.choice((0, self._times(value))))
        if kind == 1:
            return rng.sample(value, len(value))
        if kind == 2:
            return [*value, None]
        return [*value, self._change(value[0])]

    def _times(self, value: Any) -> int:
        """Return how often to repeat a value; a mutant is made large once at most."""
        room, self._room = self._room, 0
        return min(self._rng.choice((2, 2, 5, 300)), room // len(json.dumps(value))) if room else 1

    def _nest(self, value: Any) -> Any:
        rng = self._rng
        for _ in range(rng.choice((1, 3, DEEP, 900 if rng.random() < 0.05 else 2))):
            value = [value] if rng.random() < 0.5 else {"spec": value}
        return value

    def _repeat_key(self, text: str) -> str:
        at = [index for index, char in enumerate(text) if char == "{"]
        if not at:
            return text
        index = self._rng.choice(at) + 1
        key = self._rng.choice(("metadata", "spec", "name", "uid", "min", "labels", "key", "type"))
        value = json.dumps(self._change("x"))
        return f'{text[:index]}"{key}":{value},{text[index:]}'

    def _break(self, raw: bytes) -> bytes:
        rng = self._rng
        at = rng.randrange(len(raw) + 1)
        kind = rng.randrange(3)
        if kind == 0:
            return raw[:at]
        return raw[:at] + bytes([rng.randrange(256)]) + raw[at + (kind == 1) :]


def _unshare(value: Any) -> Any:
    """Return a copy in which a change of one part changes no other."""
    return json.loads(json.dumps(value))
