"""Plain lines for pipes; on terminals also a picture of the cluster, which fits."""

import io
import re
import time

import pytest
from rich.console import Console

from koord.kube.wire import WireCondition
from koord_sandbox.demo.observer import DemoCluster, SeenGang, SeenPod
from koord_sandbox.demo.screen import Screen, draw

WHY = WireCondition("Placed", "False", "InsufficientNodes", "Room for 0 of 8 pods. " + "long " * 50)
NODES = [f"a100x8-{number:04}" for number in range(8)]
CLUSTER = DemoCluster(
    gangs=(SeenGang("resnet", 4), SeenGang("llama", 8, (WHY,))),
    pods=(
        *(
            SeenPod(f"resnet-{i}", "resnet", 8, "Running", f"a100x8-000{i}", bound_at=1.0)
            for i in range(4)
        ),
        *(SeenPod(f"llama-{i}", "llama", 8, "Pending") for i in range(8)),
    ),
)


def play(console):
    screen = Screen(console, lambda: CLUSTER, time.monotonic())
    screen.nodes = NODES
    with screen.live:
        screen.narrate("A story.")
        screen.write("kubectl get pods", "$")
        screen.write("a [bold] line")
        with screen.step("something " * 30):
            pass
        screen.wait_for_reader(0)
    return console.file.getvalue()


def render(drawing, width=80):
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(drawing)
    return console.file.getvalue()


def test_a_pipe_gets_plain_lines():
    text = play(Console(file=io.StringIO(), width=80))
    assert re.sub(r" *\d+\.\d s", "T", text).splitlines() == [
        "",
        "T   A story.",
        "T $ kubectl get pods",
        "T   a [bold] line",
        f"T ✓ {'something ' * 30}",
    ]


def test_a_terminal_also_gets_the_cluster():
    text = play(Console(file=io.StringIO(), width=80, force_terminal=True))
    for seen in ("A story.", "a [bold] line", "a100x8-0000"):
        assert seen in text


@pytest.mark.parametrize(("width", "height"), [(120, 9), (80, 9), (76, 9), (50, 13)])
def test_the_picture_fits_the_terminal(width, height):
    lines = render(draw(CLUSTER, NODES), width).splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) <= height


def test_the_picture_shows_gangs_and_nodes():
    text = render(draw(CLUSTER, NODES))
    words = [line.split() for line in text.splitlines()]
    assert ["resnet", "4/4", "4/4", "4/4"] in words
    assert ["llama", "8/8", "0/8", "0/8", "InsufficientNodes:"] in [line[:5] for line in words]
    assert "a100x8-0003 ████████ 8/8 resnet" in text
    assert "a100x8-0004 ········ 0/8" in text


def test_a_narrow_terminal_still_says_why_a_gang_waits():
    assert "InsufficientNodes" in render(draw(CLUSTER, NODES), 52)


def test_a_gang_with_all_its_nodes_does_not_wait_though_its_status_is_old():
    cluster = DemoCluster(gangs=(SeenGang("resnet", 4, (WHY,)),), pods=CLUSTER.pods)
    assert "InsufficientNodes" not in render(draw(cluster, NODES))


def test_an_empty_cluster_can_be_drawn():
    assert render(draw(DemoCluster(), [])).strip() == ""
