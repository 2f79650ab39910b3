"""Writes the lists of protected keys into the policies of ``manifests/cluster``.

    make policies

Each module of ``koord.api.keys`` says in the docstring of a key that it is a result: what the
operators write, and nobody else. So a new result is protected as soon as it has an entry. In a
policy a comment ``# Made from …`` names the list that the variable below it holds.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from koord.reference.entries import Entry, EntryKind, list_entries

ROOT: Final = Path(__file__).parents[1]
POLICIES: Final = ROOT / "manifests" / "cluster"
_RESULT: Final = re.compile(
    r"(?P<on>Pod|Reservation|Pod or Reservation|Quota|Placeholder|Job) (?P<what>annotation|label) "
    r"\(result(?P<shared>, also of device plugins)?\)(, .*)?"
)
_VARIABLE: Final = re.compile(
    r"(?P<head> *# Made from (?P<title>[^;\n]+); run make policies\.\n"
    r" *- name: \w+\n(?P<indent> *)expression: >-\n) +\[.*?\]\n",
    re.DOTALL,
)


class Result(NamedTuple):
    """A key that operators write: on which objects, and whether device plugins write it, too."""

    key: str
    on: frozenset[str]
    is_label: bool
    is_shared: bool

    @property
    def is_beginning(self) -> bool:
        return self.key.endswith("-")


def list_results(entries: Iterable[Entry]) -> Iterator[Result]:
    """Yield the results among the keys. Raises ValueError if one does not say what it is on."""
    for entry in entries:
        if entry.kind is not EntryKind.KEY or "(result" not in entry.where:
            continue
        match = _RESULT.fullmatch(entry.where)
        if match is None:
            raise ValueError(f"{entry.key}: it is unclear who writes a {entry.where!r}")
        on = frozenset(match["on"].split(" or "))
        yield Result(entry.key, on, match["what"] == "label", bool(match["shared"]))


def make_lists() -> Mapping[str, list[str]]:
    """Return the lists by the title that stands in the comments of policies."""
    results = sorted(list_results(list_entries()))
    of_pods = [result for result in results if "Pod" in result.on]
    annotations = [result for result in of_pods if not result.is_label and not result.is_beginning]
    return {
        "all result annotations of pods": [result.key for result in annotations],
        "result annotations of pods": [
            result.key for result in annotations if not result.is_shared
        ],
        "result annotations of pods that device plugins write, too": [
            result.key for result in annotations if result.is_shared
        ],
        "beginnings of result annotations of pods": [
            result.key for result in of_pods if result.is_beginning
        ],
        "result labels of pods": [result.key for result in of_pods if result.is_label],
        "result annotations of reservations": [
            result.key for result in results if "Reservation" in result.on
        ],
        "result annotations of quotas": [result.key for result in results if "Quota" in result.on],
    }


def fill_in(text: str, lists: Mapping[str, list[str]]) -> str:
    """Return a manifest with the lists that it names. Raises KeyError for an unknown title."""

    def write(match: re.Match[str]) -> str:
        indent = match["indent"] + "  "
        keys = ",\n".join(f"{indent}  '{key}'" for key in lists[match["title"]])
        return f"{match['head']}{indent}[\n{keys}\n{indent}]\n"

    return _VARIABLE.sub(write, text)


def make_policies() -> Iterator[tuple[Path, str]]:
    """Yield the path and the text of every manifest."""
    lists = make_lists()
    for path in sorted(POLICIES.glob("*.yaml")):
        yield path, fill_in(path.read_text(encoding="utf-8"), lists)


def main() -> None:
    for path, text in make_policies():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
