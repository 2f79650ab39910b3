"""The picture of ``koord watch``."""

from __future__ import annotations

from rich.console import Console
from tests.builders import make_node, make_pod
from tests.cli.test_overview import NOW, make_state

from koord.answers.queue_view import view_queue
from koord.cli.watch_view import ScreenContent, draw, make_screen_content
from koord.core.engine.scoring import Scoring


def take(nodes: int = 0) -> ScreenContent:
    state = make_state()
    for at in range(nodes):
        state.upsert_node(make_node(f"gpu-node-{at:04}").gpu(8).build())
        pod = make_pod(f"team-{at % 40}/p{at}").gpu(5).running(f"gpu-node-{at:04}")
        state.upsert_pod(pod.build())
    state.refresh()
    return make_screen_content(state, view_queue(state, Scoring()), NOW)


def write(
    picture: ScreenContent, width: int = 80, height: int = 40, problem: str = ""
) -> list[str]:
    console = Console(width=width, height=height, color_system=None)
    with console.capture() as capture:
        console.print(draw(picture, width, height, problem))
    return capture.get().splitlines()


def test_every_part_is_there() -> None:
    text = "\n".join(write(take()))
    assert "3 nodes, 8 of 24 GPUs used, 0 gangs running, 3 waiting" in text
    assert "default/big" in text
    assert "InsufficientEntitlement" in text
    assert "team" in text
    assert "n0 aaaaaaaa" in text
    assert "n1 ········" in text
    assert "n2 xxxxxxxx" in text, "it is cordoned"
    assert "x on a node that takes no pods" in text
    assert "a default" in text


def test_gangs_that_run_are_listed_with_their_minimum() -> None:
    state = make_state()
    for at in range(2):
        pod = make_pod(f"big-{at}").gpu(8).quota("team").gang("default/big")
        state.upsert_pod(pod.released("n1", "p").running("n1").build())
    state.refresh()
    lines = write(make_screen_content(state, (), NOW))
    assert ["default/big", "2", "2", "16"] in [line.split() for line in lines]


def test_a_large_cluster_fits_the_screen_and_the_rest_is_counted() -> None:
    lines = write(take(500), height=40)
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 40
    assert any("more" in line for line in lines)


def test_a_failed_reading_is_told_above_the_last_picture() -> None:
    assert "not read again: no answer" in write(take(), problem="no answer")[1]


def test_one_namespace() -> None:
    text = "\n".join(write(take().within("other")))
    assert "0 waiting" in text
    assert "team " not in text
    assert "n0 aaaaaaaa" in text


def test_what_is_missing_is_told_and_unknown_nodes_are_not_counted() -> None:
    text = "\n".join(write(take()._replace(nodes=(), warnings=("you may not list nodes",))))
    assert "you may not list nodes" in text
    assert "NODES" not in text
    assert "0 nodes" not in text
    assert "default/big" in text
