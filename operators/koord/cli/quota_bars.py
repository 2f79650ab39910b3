"""Bars of the tree of quotas: what of its max a quota uses, is entitled to and is guaranteed."""

from typing import Final, NamedTuple

from rich.text import Text

WIDTH: Final = 20


class Glyphs(NamedTuple):
    """What a bar is drawn with."""

    used: str
    entitled: str
    rest: str
    minimum: str


BLOCKS: Final = Glyphs("█", "▒", "·", "┃")
ASCII: Final = Glyphs("#", "=", ".", "|")


def choose_glyphs(encoding: str) -> Glyphs:
    """Return what a terminal or file of an encoding can show."""
    return BLOCKS if encoding.lower().startswith("utf") else ASCII


def make_legend(glyphs: Glyphs) -> str:
    """Return what the parts of a bar mean."""
    return (
        f"Bars, from 0 to max: {glyphs.used} used, {glyphs.entitled} entitled to, "
        f"{glyphs.minimum} guaranteed"
    )


def make_bar(used: int, entitled: int, guaranteed: int, whole: int, glyphs: Glyphs) -> Text:
    """Return a bar of ``WIDTH`` cells for ``whole``; what is beyond is cut off.

    Used is green within the guarantee, yellow beyond, red beyond the entitlement.
    """
    bar = Text()
    ends = {one: _cells(one, whole) for one in (used, entitled, guaranteed)}
    for at in range(WIDTH):
        if guaranteed and at == min(ends[guaranteed], WIDTH - 1):
            bar.append(glyphs.minimum, "bold")
        elif at < ends[used]:
            style = "green" if at < ends[guaranteed] else "yellow"
            bar.append(glyphs.used, style if at < ends[entitled] else "red")
        else:
            bar.append(glyphs.entitled if at < ends[entitled] else glyphs.rest, "dim")
    return bar


def _cells(amount: int, whole: int) -> int:
    """Return how many cells an amount fills; at least one if there is anything."""
    if amount <= 0 or whole <= 0:
        return 0
    return min(WIDTH, max(1, round(WIDTH * amount / whole)))
