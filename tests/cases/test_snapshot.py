"""A snapshot of a real cluster is planned again without it, with the same result."""

import gzip
import json
import tarfile
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

from tests.operators.conftest import Cluster
from tests.operators.test_everyday import ask, koord
from typer.testing import CliRunner

from koord.cli.main import app
from koord.cli.next_cycle import fetch_cycle


def test_a_snapshot_is_planned_as_the_cluster_was(cluster: Cluster, tmp_path: Path) -> None:
    cluster.add_nodes(2)
    cluster.gang("runs", 2)
    cluster.expect_bound("runs-0", "runs-1")
    cluster.gang("waits", 2)
    cluster.expect_group("waits", "InsufficientNodes")
    file = tmp_path / "today.ksnap"
    gang = f"{cluster.namespace}/waits"
    taken = koord(cluster, "snapshot", "-o", str(file), "--unit", gang)
    assert taken.exit_code == 0, taken.output
    assert file.stat().st_mode & 0o777 == 0o600
    again = CliRunner().invoke(app, ["replay", str(file), "--unit", gang, "-o", "json"])
    assert again.exit_code == 0, again.output
    document = json.loads(again.stdout)
    (unit,) = document["units"]
    assert unit["reason"] == "InsufficientNodes"
    report = tmp_path / "report.tar.gz"
    written = koord(cluster, "bug-report", "-o", str(report))
    assert written.exit_code == 0, written.output
    with tarfile.open(report) as tar:
        assert tar.getnames()[:3] == ["versions.json", "status.json", "snapshot.ksnap"]
        texts = [stream.read() for name in tar.getnames() if (stream := tar.extractfile(name))]
    assert not [text for text in (*texts, gzip.decompress(texts[2])) if gang.encode() in text]
    shown = ask(cluster, "queue", "-n", cluster.namespace)["waiting"]
    assert unit["names"] in [entry["names"] for entry in shown]


def test_the_next_cycle_of_the_leader_is_planned_again(cluster: Cluster, tmp_path: Path) -> None:
    cluster.add_nodes(2)
    cluster.gang("runs", 2)
    cluster.expect_bound("runs-0", "runs-1")
    file, kubeconfig = tmp_path / "next.ksnap", (str(cluster.box.kubeconfig), "")
    names = (f"later-{number}" for number in count())
    with ThreadPoolExecutor(1) as pool:
        fetched = pool.submit(fetch_cycle, str(file), "", "", kubeconfig)

        def is_there() -> bool:
            if not fetched.done():
                cluster.gang(next(names), 2)  # something to be planned
            return fetched.done()

        cluster.expect(is_there, "the cycle is recorded")
        fetched.result()
    again = CliRunner().invoke(app, ["replay", str(file), "-o", "json"])
    assert again.exit_code == 0, again.output
    document = json.loads(again.stdout)
    assert document["recorded"]["source"] == "Leader"
    assert document["units"]
