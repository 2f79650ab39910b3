"""Lines for pipes, a living picture for terminals."""

import io
import re
import time

from rich.console import Console

from koord.demo.observed import Cluster, SeenNode
from koord.demo.screen import Screen


def play(console):
    cluster = Cluster(nodes=(SeenNode("node-0", 8),))
    with Screen(console, lambda: cluster, time.monotonic()) as screen:
        screen.tell("A story.")
        screen.type("kubectl get pods")
        screen.answer("a [bold] line")
        with screen.step("something " * 30):
            pass
        screen.rest(0)
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


def test_a_terminal_gets_the_cluster_too():
    text = play(Console(file=io.StringIO(), width=80, force_terminal=True))
    for seen in ("A story.", "a [bold] line", "node-0"):
        assert seen in text
    assert "kubectl g" in text
    assert "▌" in text
