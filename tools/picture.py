"""Draws the picture of the README from what the planner decides.

    PYTHONPATH=. .venv/bin/python tools/picture.py

Two jobs of six pods want eight GPUs. Left: each pod alone, in the order of arrival. Right: our plan
for the same pods.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from tests.builders import make_node, make_pod
from tests.cluster import make_cluster, make_unit

TARGET = Path(__file__).parents[1] / "docs" / "pictures" / "gangs.svg"
SIZE = 6
GPUS = 8
CELL = 34
PANEL = 380
STYLE = """
  text { font: 14px system-ui, sans-serif; fill: #1f2328 }
  .title { font-weight: 600 } .note { font-size: 12px } .free { fill: none; stroke: #8c959f }
  .first { fill: #0969da } .second { fill: #bf8700 } .cell { fill: #fff; font-weight: 600 }
  @media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .cell { fill: #fff } }
"""


def place_one_by_one() -> list[str]:
    """Give each GPU to the next pod, whichever job it is of."""
    arriving = [job for _ in range(SIZE) for job in ("A", "B")]
    return arriving[:GPUS]


def place_whole() -> list[str]:
    """Return what each GPU runs by our plan; the other job waits."""
    cluster = make_cluster()
    cluster.nodes(make_node("node").gpu(GPUS))
    units = [make_unit(job, [make_pod(f"{job}-{at}").gpu(1) for at in range(SIZE)]) for job in "AB"]
    plan = cluster.plan(*units)
    (placement,) = plan.placements
    return [placement.unit] * len(placement.assignments)


def draw_panel(left: int, title: str, cells: Sequence[str], notes: Sequence[str]) -> Iterator[str]:
    yield f'<text class="title" x="{left}" y="28">{escape(title)}</text>'
    for at in range(GPUS):
        x = left + at * (CELL + 6)
        job = cells[at] if at < len(cells) else ""
        look = {"A": "first", "B": "second"}.get(job, "free")
        yield f'<rect class="{look}" x="{x}" y="44" width="{CELL}" height="{CELL}" rx="5"/>'
        if job:
            yield f'<text class="cell" x="{x + 12}" y="66">{job}</text>'
    for at, note in enumerate(notes):
        yield f'<text class="note" x="{left}" y="{104 + 20 * at}">{escape(note)}</text>'


def draw() -> str:
    cells = place_whole()
    alone = place_one_by_one()
    held = " and ".join(f"{job} holds {alone.count(job)} of {SIZE}" for job in "AB")
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * PANEL} 150" role="img">',
        "<title>Two jobs of six pods on eight GPUs: pod by pod, and as a whole</title>",
        f"<style>{STYLE}</style>",
        *draw_panel(
            20, "Pod by pod", alone, [f"{held}.", "Neither can start; all GPUs are taken."]
        ),
        *draw_panel(
            PANEL + 10,
            "As a whole",
            cells,
            [
                "A runs. B waits, holds nothing, and says why:",
                f"room for {GPUS - SIZE} of {SIZE} pods.",
            ],
        ),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(draw(), encoding="utf-8")
