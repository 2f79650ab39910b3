"""What is drawn fits the terminal and says what was seen."""

import io

import pytest
from rich.console import Console

from koord.demo.claims import Timing
from koord.demo.observed import Cluster, Condition, SeenGang, SeenNode, SeenPod
from koord.demo.table import draw, draw_summary

WHY = Condition("Placed", False, "InsufficientNodes", "0/8 nodes are available: " + "long " * 50)
CLUSTER = Cluster(
    nodes=tuple(SeenNode(f"a100x8-{number:04}", 8) for number in range(8)),
    gangs=(SeenGang("resnet", 4, "Running"), SeenGang("llama", 8, "PreScheduling", (WHY,))),
    pods=(
        *(
            SeenPod(f"resnet-{i}", "resnet", 8, 0.0, "Running", f"a100x8-000{i}", bound_at=1.0)
            for i in range(4)
        ),
        *(SeenPod(f"llama-{i}", "llama", 8, 0.0, "Pending") for i in range(8)),
    ),
)


def render(drawing, width=80):
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(drawing)
    return console.file.getvalue()


@pytest.mark.parametrize(("width", "height"), [(120, 9), (80, 9), (76, 9), (75, 13), (50, 13)])
def test_it_fits(width, height):
    lines = render(draw(CLUSTER, width), width).splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) <= height


def test_it_says_what_was_seen():
    text = render(draw(CLUSTER, 80))
    words = [line.split() for line in text.splitlines()]
    assert ["resnet", "Running", "4/4", "4/4", "4/4"] in words
    assert ["llama", "PreScheduling", "8/8", "0/8", "0/8", "InsufficientNodes:"] in [
        line[:6] for line in words
    ]
    assert "a100x8-0003 ████████ 8/8 resnet" in text
    assert "a100x8-0004 ········ 0/8" in text


def test_a_narrow_terminal_still_says_why():
    assert "InsufficientNodes" in render(draw(CLUSTER, 52), 52)


def test_who_has_all_its_nodes_does_not_wait():
    stale = SeenGang("resnet", 4, "Pending", (WHY,))
    cluster = Cluster(gangs=(stale,), pods=CLUSTER.pods)
    assert "InsufficientNodes" not in render(draw(cluster, 80))


def test_an_empty_cluster_can_be_drawn():
    assert render(draw(Cluster(), 80)).strip() == ""


def test_the_summary_counts_from_the_start():
    timing = Timing("llama", 8, 8, since_complete=4.0, since_room=0.25, last_bound_at=110.0)
    words = render(draw_summary([timing], began=100.0)).split()
    assert words[-9:] == ["llama", "8", "8", "4.00", "s", "0.25", "s", "10.00", "s"]
