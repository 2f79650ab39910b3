"""Parses pages of documentation into blocks of files and commands.

A step is a fenced block. ``console`` blocks hold commands after ``$ ``, ``yaml`` blocks objects,
``python`` blocks a program. When a name follows ``yaml`` or ``python``, the block is a file. A
comment right above a block says when it does not run:

    <!-- run: on demand -->
    <!-- run: no, REASON -->
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

_FENCE = re.compile(r"^(?P<ticks>`{3,})(?P<language>\S*)[ ]*(?P<title>\S*)\s*$")
_DIRECTIVE = re.compile(r"^<!-- run: (?P<how>on demand|no, (?P<reason>.+)) -->$")
_LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"^#+ (?P<text>.+)$")


class Run(Enum):
    ALWAYS = "always"
    ON_DEMAND = "on demand"
    NEVER = "never"


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    title: str
    text: str
    run: Run

    def __str__(self):
        return f"{self.page}:{self.line}"

    @property
    def commands(self) -> list[str]:
        """The commands of a console block; a backslash continues a line."""
        return re.findall(r"^\$ ((?:.*\\\n)*.*)$", self.text, flags=re.MULTILINE)


def parse_page(path: Path, name: str) -> list[Block]:
    return list(_parse_lines(path.read_text(encoding="utf-8").splitlines(), name))


def _parse_lines(lines: list[str], name: str) -> Iterator[Block]:
    run, opened, start = Run.ALWAYS, None, 0
    for number, line in enumerate(lines, 1):
        if opened is None:
            opened, start = _FENCE.match(line), number
            if opened is None:
                run = _parse_directive(line, f"{name}:{number}", run)
        elif line == opened["ticks"]:
            text = "\n".join(lines[start : number - 1]) + "\n"
            yield Block(name, start, opened["language"], opened["title"], text, run)
            opened, run = None, Run.ALWAYS
    if opened is not None:
        raise ValueError(f"{name}:{start}: the block has no end")


def _parse_directive(line: str, place: str, before: Run) -> Run:
    directive = _DIRECTIVE.match(line)
    if directive is not None:
        return Run.ON_DEMAND if directive["how"] == "on demand" else Run.NEVER
    if line.startswith("<!-- run"):
        raise ValueError(f"{place}: {line} is neither 'on demand' nor 'no, REASON'")
    return before if not line.strip() else Run.ALWAYS


def links_of(text: str) -> list[str]:
    """Return the targets of all links outside of blocks."""
    return [match["target"] for match in _LINK.finditer(_without_blocks(text))]


def anchors_of(text: str) -> set[str]:
    """Return the anchors of the page, as GitHub makes them."""
    headings = (_HEADING.match(line) for line in _without_blocks(text).splitlines())
    return {_anchor_of(heading["text"]) for heading in headings if heading}


def _anchor_of(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def _without_blocks(text: str) -> str:
    return re.sub(r"^(`{3,}).*?^\1$", "", text, flags=re.MULTILINE | re.DOTALL)
