"""Without its names a snapshot is planned in the same way, and tells no name."""

from __future__ import annotations

import gzip
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.builders import make_node, make_pod, make_pod_group
from tests.replay.worlds import record_world
from typer.testing import CliRunner

from koord.cli.main import app
from koord.core.engine.scoring import Scoring
from koord.core.model.pods import Pod
from koord.core.model.topology_constraint import rank_member
from koord.core.quota.hooks import Hooks
from koord.replay.anonymise import anonymise, anonymise_checked
from koord.replay.decisions import bare, decide_all
from koord.replay.order_map import NoOrder, OrderMap
from koord.replay.recorded import KindGap, RecordedCluster
from koord.replay.snapshot_file import SnapshotFile, read_snapshot, write_snapshot

if TYPE_CHECKING:
    from pathlib import Path

NOW = 1_770_000_000.0


def record(cluster: RecordedCluster) -> SnapshotFile:
    return SnapshotFile(cluster, decide_all(cluster.make_state(Hooks()), Scoring()))


@pytest.mark.parametrize("number", range(2, 150, 15))
def test_the_plan_without_names_is_the_plan_with_names_replaced(number: int) -> None:
    snapshot = record(record_world(number))
    without = anonymise(snapshot).snapshot
    decided = decide_all(without.cluster.make_state(Hooks()), Scoring())
    assert tuple(map(bare, decided)) == without.decisions


def make_scene() -> RecordedCluster:
    nodes = (
        make_node("ip-10-0-12-7.acme.example").gpu(8).label("acme.example/pool", "secret-lab"),
        make_node("ip-10-0-12-10.acme.example").gpu(8).label("topology.kubernetes.io/zone", "zrh"),
    )
    gang = "customer-one/llama-pretrain"
    pods = [make_pod(f"customer-one/llama-{at}").gang(gang).gpu(4) for at in (2, 10, 11)]
    pods[0].labels(team="vision-group").select("acme.example/pool", "secret-lab")
    objects: dict[str, tuple[Any, ...]] = {
        "nodes": tuple(node.build() for node in nodes),
        "podgroups": (make_pod_group(gang, min_member=2).build(),),
        "pods": tuple(pod.created(NOW - 60).build() for pod in pods),
    }
    return RecordedCluster(NOW, objects)


NAMES = ("customer", "llama", "pretrain", "acme", "secret", "vision", "team", "zrh", "10-0-12")


def test_no_name_is_left(tmp_path: Path) -> None:
    anonymised = anonymise_checked(record(make_scene()), Hooks)
    content = gzip.decompress(write_snapshot(anonymised.snapshot)).decode()
    assert not [name for name in NAMES if name in content]
    assert "topology.kubernetes.io/zone" in anonymised.kept
    assert "nvidia.com/gpu" in anonymised.kept


def test_times_are_moved_by_whole_weeks_and_ages_stay() -> None:
    before = make_scene()
    after = anonymise(record(before)).snapshot.cluster
    moved = before.now - after.now
    assert moved > 0
    assert moved % (7 * 24 * 3600) == 0
    (created,) = {pod.created for pod in after.values["pods"] if isinstance(pod, Pod)}
    assert after.now - created == 60


def test_equal_values_stay_equal() -> None:
    (first, *_), nodes = (
        anonymise(record(make_scene())).snapshot.cluster.values[kind] for kind in ("pods", "nodes")
    )
    ((key, value),) = first.shape.node_selector
    assert [node.labels.get(key) == value for node in nodes] == [True, False]


def test_the_command_writes_a_file_that_is_planned_equally(tmp_path: Path) -> None:
    file, to = tmp_path / "f.ksnap", tmp_path / "g.ksnap"
    file.write_bytes(write_snapshot(record(make_scene())))
    made = CliRunner().invoke(app, ["snapshot", "anonymise", str(file), "-o", str(to)])
    assert made.exit_code == 0, made.output
    assert "nvidia.com/gpu" in made.stdout
    assert read_snapshot(to).is_anonymised
    again = CliRunner().invoke(app, ["replay", str(to)])
    assert (again.exit_code, "the same is decided" in again.stdout) == (0, True), again.output


texts = st.lists(st.text("ab1_-./", max_size=6), max_size=8)


@given(texts, st.lists(st.sampled_from(["ab", "b", "a1", "bab"]), max_size=3))
def test_texts_keep_their_order(words: list[str], kept: list[str]) -> None:
    every = {*words, *kept}
    try:
        of_all = OrderMap(every, set(kept))
    except NoOrder:
        assume(False)
    assert sorted(every, key=of_all.replace) == sorted(every)
    assert len({of_all.replace(text) for text in every}) == len(every)


@given(texts)
def test_names_of_pods_keep_the_order_of_their_numbers(names: list[str]) -> None:
    of_pods = OrderMap(names, (), keeps_numbers=True)

    def rank(name: str) -> object:
        return rank_member(0, name, "")

    assert sorted(names, key=lambda name: rank(of_pods.replace(name))) == sorted(names, key=rank)
    assert sorted(names, key=of_pods.replace) == sorted(names)


def test_kinds_and_hooks_of_a_site_stay_and_are_told() -> None:
    cluster = replace(
        record_world(0), hooks=("acme-billing",), gaps=(KindGap("acmejobs", "AcmeJobs", "Nothing"),)
    )
    anonymised = anonymise(SnapshotFile(cluster, ()))
    assert anonymised.snapshot.cluster.hooks == ("acme-billing",)
    assert {"acme-billing", "acmejobs"} <= set(anonymised.kept)
    assert "nodes" not in anonymised.kept, "what everybody has is no news"
