"""Draws the pictures of the pages from what commands answer about small clusters.

    PYTHONPATH=. .venv/bin/python tools/answers.py

Each is what ``--output svg`` of the command writes.
"""

import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from rich.console import Console, RenderableType
from rich.text import Text
from tests.builders import GPU, make_node, make_pod, make_pod_group, make_quota
from tests.cli.readings import make_reading
from tests.cluster import make_cluster, open_cycle
from tests.device.test_plugin import gpu_cluster, part, settle, whole
from tests.topology.test_gang_topology import GANG, make_members, make_network, must, run

from koord.answers.queue_view import view_queue
from koord.answers.quota_view import view_quotas
from koord.answers.reading import Target, TargetKind
from koord.answers.reports import Reported
from koord.answers.why import make_answer
from koord.cli.device_view import draw_node
from koord.cli.explain_view import BEST_NODES, make_parts
from koord.cli.output import to_svg
from koord.cli.quota_text import choose_glyphs, make_tree_lines
from koord.cli.topology_view import describe_free, draw
from koord.cli.watch_view import draw as draw_screen
from koord.cli.watch_view import make_screen_content
from koord.core.device.plugin import Devices
from koord.core.device.status import observe_devices
from koord.core.engine.scoring import Scoring
from koord.core.model.topology_constraint import NODE_LAYER, TopologyConstraint
from koord.core.topology.layers import Layer
from koord.core.topology.strategy.observation import domain_capacities

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"


def show_lending() -> Iterable[RenderableType]:
    """``koord quota tree``: vision needs more than its guarantee, speech lends it."""
    cluster = make_cluster()
    cluster.nodes(*(make_node(f"n{at}").gpu(8) for at in range(4)))
    most = {GPU: 32}
    cluster.quotas(
        make_quota("org", min=most, max=most, is_parent=True),
        make_quota("vision", parent="org", min={GPU: 16}, max=most),
        make_quota("speech", parent="org", min={GPU: 16}, max=most),
    )
    vision = [make_pod(f"v-{at}").gpu(8).quota("vision").running(f"n{at}") for at in range(3)]
    cluster.pods(*vision, make_pod("s-0").gpu(8).quota("speech").running("n3"))
    return make_tree_lines(view_quotas(cluster.state), choose_glyphs("utf-8"))


def show_rack() -> Iterable[RenderableType]:
    """``koord topology``: a gang of two whole nodes took the rack that it fills."""
    layers = (
        Layer("Spine", "", ("spine",)),
        Layer("Rack", "Spine", ("block",)),
        Layer(NODE_LAYER, "Rack"),
    )
    racks = {"s0": {"r0": [64, 64, 64], "r1": [64, 64]}, "s1": {"r2": [64, 64, 64]}}
    cluster = make_network(racks, layers)
    group = make_pod_group(GANG, 2).topology(TopologyConstraint((must("Rack"),), "default"))
    cluster.pod_groups(group)
    cluster.assume(run(cluster, make_members(2, cpus=64)))
    tree = cluster.state.topologies.tree("default")
    assert tree is not None  # noqa: S101 - the topology above is valid
    yield draw(tuple(domain_capacities(open_cycle(cluster.state), tree)), describe_free, None, "")


def show_devices() -> Iterable[RenderableType]:
    """``koord devices NODE``: four GPUs side by side, and a part of a fifth."""
    cluster = gpu_cluster(1)
    settle(cluster, whole("train-0", 4))
    settle(cluster, part("notebook", 30))
    plugin = cluster.state.plugin(Devices)
    report = plugin.reports["n0"]
    return draw_node(report, observe_devices(plugin, report, cluster.state.pods))


def show_waiting() -> Iterable[RenderableType]:
    """``koord explain job/train``: six pods need whole nodes, and there are four."""
    objects = [
        *(make_node(f"n{at}").gpu(8).build() for at in range(4)),
        *(make_pod(f"train-{at}").gpu(8).gang("default/train").build() for at in range(6)),
        make_pod_group("default/train", 6).build(),
    ]
    target = Target(TargetKind.POD_GROUP, "default", "train")
    answer = make_answer(make_reading(*objects), target, 0.0)
    assert answer.reason is not None  # noqa: S101 - it waits
    reported = Reported("Bound", "False", answer.reason.reason.code, answer.reason.message, "")
    history = replace(answer.history, reported=reported)
    return make_parts(replace(answer, history=history), 0.0, BEST_NODES)


def show_watch() -> Iterable[RenderableType]:
    """``koord watch``: two gangs run, one waits for GPUs and one pod for the rest of its gang."""
    cluster = make_cluster()
    cluster.nodes(*(make_node(f"gpu-{at}").gpu(8) for at in range(6)))
    now = time.mktime((2026, 3, 1, 10, 42, 7, 0, 0, -1))
    for name, size, gpus, nodes in (
        ("team-a/llama", 3, 8, (0, 1, 2)),
        ("team-b/bert", 2, 4, (3, 3)),
        ("team-b/whisper", 3, 8, ()),
        ("team-c/eval", 2, 1, ()),
    ):
        cluster.pod_groups(make_pod_group(name, size))
        made = [make_pod(f"{name}-{at}").gpu(gpus).gang(name) for at in range(size)]
        pods = [pod.created(now - 240 - 30 * len(nodes)) for pod in made[: size - (gpus == 1)]]
        for pod, node in zip(pods, nodes, strict=False):
            pod.released(f"gpu-{node}", "p").running(f"gpu-{node}")
        cluster.pods(*pods)
    cluster.pods(make_pod("team-c/notebook").gpu(2).running("gpu-4"))
    cluster.state.refresh()
    picture = make_screen_content(cluster.state, view_queue(cluster.state, Scoring()), now)
    screen = Console(width=80, force_terminal=True, color_system="standard", highlight=False)
    with screen.capture() as capture:
        screen.print(draw_screen(picture, screen.width, 40))
    yield Text.from_ansi(capture.get())


PICTURES = {
    "watch": show_watch,
    "waiting": show_waiting,
    "quota-tree": show_lending,
    "rack": show_rack,
    "node-gpus": show_devices,
}


if __name__ == "__main__":
    for name, show in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(to_svg(show()), encoding="utf-8")
