"""Many nodes with numbers of pods in one short text: ``gpu-[001-016,020]*8 login*1``.

Numbers at the end of names are put together. Whoever reads such a text trusts nothing in it.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Final

MOST_PLACES: Final = 10_000
"""More are not read."""
_NUMBERED: Final = re.compile(r"(.*?)([0-9]{1,9})")
_ENTRY: Final = re.compile(r"([a-z0-9.-]*)(?:\[([0-9,-]+)\])?\*([0-9]{1,6})")


def write_places(places: Mapping[str, int]) -> str:
    """Return nodes with their numbers of pods as one text."""
    groups: dict[tuple[str, int, int], list[int]] = defaultdict(list)
    for node, pods in places.items():
        numbered = _NUMBERED.fullmatch(node)
        name, digits = numbered.groups() if numbered else (node, "")
        groups[name, len(digits), pods].append(int(digits or 0))
    return " ".join(
        f"{name}{_write_numbers(sorted(numbers), width)}*{pods}"
        for (name, width, pods), numbers in sorted(groups.items())
    )


def _write_numbers(numbers: list[int], width: int) -> str:
    if not width:
        return ""
    if len(numbers) == 1:
        return f"{numbers[0]:0{width}}"
    runs = []
    for _, group in groupby(enumerate(numbers), key=lambda item: item[1] - item[0]):
        run = [number for _, number in group]
        ends = (run[0], run[-1]) if len(run) > 1 else (run[0],)
        runs.append("-".join(f"{number:0{width}}" for number in ends))
    return f"[{','.join(runs)}]"


def read_places(text: str) -> dict[str, int]:
    """Return nodes with their numbers of pods; nothing if any of it is nonsense."""
    places: dict[str, int] = {}
    try:
        for entry in text.split():
            for node, pods in _read_entry(entry):
                places[node] = pods
                if len(places) > MOST_PLACES:
                    return {}
    except ValueError:
        return {}
    return places


def _read_entry(entry: str) -> Iterator[tuple[str, int]]:
    matched = _ENTRY.fullmatch(entry)
    if matched is None:
        raise ValueError(entry)
    name, ranges, pods = matched.groups()
    if ranges is None:
        yield name, int(pods)
        return
    for part in ranges.split(","):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if len(first) != len(last) or len(first) > _LONGEST_NUMBER:
            raise ValueError(entry)
        for number in range(int(first), int(last) + 1):
            yield f"{name}{number:0{len(first)}}", int(pods)


_LONGEST_NUMBER: Final = 9
