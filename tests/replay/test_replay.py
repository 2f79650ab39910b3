"""A recorded cluster is planned again with the same result, and damaged files are refused."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from typing import TYPE_CHECKING, Any

import pytest
from tests.builders import make_node, make_pod, make_pod_group
from tests.replay.worlds import record_world
from typer.testing import CliRunner

from koord.cli import replay_view
from koord.cli.main import app
from koord.core.engine.scoring import Scoring
from koord.core.quota.hooks import Hooks
from koord.replay import archive, values
from koord.replay.archive import UnusableFile
from koord.replay.decisions import UnitDecision, compare, decide_all
from koord.replay.recorded import RecordedCluster
from koord.replay.snapshot_file import SnapshotFile, read_snapshot, write_snapshot

if TYPE_CHECKING:
    from pathlib import Path

NOW = 1_770_000_000.0


def decide(cluster: RecordedCluster) -> tuple[UnitDecision, ...]:
    return decide_all(cluster.make_state(Hooks()), Scoring())


def make_snapshot() -> SnapshotFile:
    """Return a gang of two that starts, and a pod for which there is no room."""
    objects: dict[str, tuple[Any, ...]] = {
        "nodes": tuple(make_node(f"n{at}").gpu(8).build() for at in (0, 1)),
        "podgroups": (make_pod_group("team-a/train", min_member=2).build(),),
        "pods": (
            *(make_pod(f"team-a/w-{at}").gang("team-a/train").gpu(8).build() for at in (0, 1)),
            make_pod("team-b/late").gpu(8).created(NOW).build(),
        ),
    }
    cluster = RecordedCluster(NOW, objects)
    return SnapshotFile(cluster, decide(cluster))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "f.ksnap"
    path.write_bytes(write_snapshot(make_snapshot()))
    return path


@pytest.mark.parametrize("number", range(0, 150, 10))
def test_random_clusters_are_planned_as_recorded(number: int, tmp_path: Path) -> None:
    cluster = record_world(number)
    recorded = decide(cluster)
    path = tmp_path / "f.ksnap"
    path.write_bytes(write_snapshot(SnapshotFile(cluster, recorded)))
    read = read_snapshot(path)
    assert not [*compare(recorded, decide(read.cluster))]
    assert not [*compare(recorded, read.decisions)]
    for kind, objects in cluster.values.items():
        assert {repr(each) for each in objects} == {
            repr(each) for each in read.cluster.values.get(kind, ())
        }


def test_the_same_cluster_is_the_same_file() -> None:
    assert write_snapshot(make_snapshot()) == write_snapshot(make_snapshot())


def run(*words: object) -> Any:
    return CliRunner().invoke(app, ["replay", *map(str, words)])


def test_what_is_equal_exits_with_0(file: Path) -> None:
    answer = run(file)
    assert answer.exit_code == 0, answer.output
    assert "2 units, the same is decided" in answer.stdout
    assert "2 pods on n0, n1" in run(file, "--unit", "team-a/train").stdout


def test_what_differs_exits_with_1(tmp_path: Path) -> None:
    snapshot = make_snapshot()
    other = SnapshotFile(snapshot.cluster, snapshot.decisions[1:])
    path = tmp_path / "f.ksnap"
    path.write_bytes(write_snapshot(other))
    answer = run(path, "-o", "json")
    assert answer.exit_code == 1
    document = json.loads(answer.stdout)
    assert not document["isEqual"]
    (change,) = document["changes"]
    assert change["names"] == ["team-a/train"]
    assert change["before"] is None


def test_edits_are_tried_on_a_snapshot(file: Path, tmp_path: Path) -> None:
    edits = tmp_path / "edits.yaml"
    edits.write_text("edits: [{addNodes: {like: n0, count: 1}}]")
    answer = run(file, "--edit", edits)
    assert answer.exit_code == 0, answer.output
    assert "pod/team-b/late" in answer.stdout


def test_hooks_that_decided_are_needed(tmp_path: Path) -> None:
    snapshot = make_snapshot()
    cluster = RecordedCluster(NOW, snapshot.cluster.values, hooks=("budget",))
    path = tmp_path / "f.ksnap"
    path.write_bytes(write_snapshot(SnapshotFile(cluster, snapshot.decisions)))
    refused = run(path)
    assert refused.exit_code == 2
    assert "budget" in refused.stderr
    assert run(path, "--without-hooks").exit_code == 0


def pack(*entries: tuple[str, bytes], kind: bytes = tarfile.REGTYPE) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in entries:
            entry = tarfile.TarInfo(name)
            entry.size, entry.type = len(content), kind
            tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is no snapshot"),
        (b"\x1f\x8b\x08nonsense", "is no snapshot"),
        (pack(("../../etc/passwd", b"x")), "is no file of a snapshot"),
        (pack(("/etc/passwd", b"x")), "is no file of a snapshot"),
        (pack(("manifest.json", b""), kind=tarfile.SYMTYPE), "is no file of a snapshot"),
        (pack(("manifest.json", b"{}"), ("manifest.json", b"{}")), "is no file of a snapshot"),
        (pack(("objects/pods.jsonl", b"")), "has no manifest.json"),
        (pack(("manifest.json", b"[")), "manifest.json is no JSON"),
        (pack(("manifest.json", b'{"format": 2}')), "format"),
        (pack(("manifest.json", b'{"format": 1}')), "manifest.json"),
    ],
    ids=str,
)
def test_a_hostile_file_is_unusable(content: bytes, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "f.ksnap"
    path.write_bytes(content)
    answer = run(path)
    assert answer.exit_code == 2, answer.output
    assert problem in answer.stderr


def test_a_file_that_unpacks_to_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MOST_BYTES", 1 << 20)
    path = tmp_path / "f.ksnap"
    path.write_bytes(gzip.compress(bytes((1 << 20) + 1)))
    with pytest.raises(UnusableFile, match="unpacks to more than"):
        read_snapshot(path)


def read_value(document: Any) -> object:
    return values.ValueReader().read(document)


@pytest.mark.parametrize(
    "document",
    [
        {"$": "Popen", "args": ["true"]},
        {"$": "ClusterState"},
        {"$": "Pod", "uid": "u"},
        {"$": "Pod", "uid": "u", "namespace": "a", "name": "b", "shape": None, "_hash": 1},
        {"$": "Taint", "key": "k", "colour": "red"},
        {"$": "Handling", "of": "NOBODY"},
        {"$": "integer", "of": "f" * 10_000},
        [{"$": "shared", "of": 0}],
        [{"$": "shared", "of": -1}],
        {"of": []},
        {"$": []},
    ],
    ids=str,
)
def test_a_value_of_no_known_form_is_refused(document: Any) -> None:
    with pytest.raises(values.UnreadableValue):
        read_value(document)


def test_shared_parts_count_as_often_as_they_are_named() -> None:
    part: Any = {"$": "Requirement", "key": "k", "operator": {"$": "SelectorOperator", "of": "IN"}}
    term: list[Any] = [part]
    for at in range(40):
        twice = [{"$": "shared", "of": at}, {"$": "shared", "of": at}]
        term.append({"$": "SelectorTerm", "expressions": twice})
    with pytest.raises(values.UnreadableValue, match="parts"):
        read_value(term)


def test_a_value_nested_too_deeply_is_refused() -> None:
    document: list[Any] = []
    for _ in range(5000):
        document = [document]
    with pytest.raises(values.UnreadableValue, match="deeply"):
        read_value(document)


def test_what_makes_the_planner_fail_is_unusable(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(replay_view, "decide", fail)
    answer = run(file)
    assert answer.exit_code == 2
    assert "ZeroDivisionError" in answer.stderr


def test_a_file_with_more_files_than_a_snapshot_has(tmp_path: Path) -> None:
    many = [(f"objects/k{at}.jsonl", b"") for at in range(archive.MOST_FILES + 1)]
    path = tmp_path / "f.ksnap"
    path.write_bytes(pack(*many))
    with pytest.raises(UnusableFile, match="more than"):
        read_snapshot(path)
