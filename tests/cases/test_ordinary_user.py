"""A user with the role ``edit`` in one namespace, and no more, types what the pages say."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import yaml
from tests.manifests.someone import create_account
from tests.operators.test_quotas import Quotas
from typer.testing import CliRunner

from koord.cli.main import app

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result
    from tests.operators.conftest import Cluster

GPU = "nvidia.com/gpu"


class User:
    """Her kubeconfig names her namespace, as that of a real user does."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        create_account(cluster.box, cluster.namespace, "ann", ["edit"])
        given = cluster.box.kubeconfig_for(cluster.namespace, "ann")
        config = yaml.safe_load(given.read_text(encoding="utf-8"))
        config["contexts"][0]["context"]["namespace"] = cluster.namespace
        self._config = directory / "kubeconfig"
        self._config.write_text(yaml.safe_dump(config), encoding="utf-8")

    def koord(self, *words: str) -> Result:
        return CliRunner().invoke(app, [*words, "--kubeconfig", str(self._config)])

    def tell(self, *words: str) -> str:
        """Return an answer, of which at most one line is about what cannot be read."""
        done = self.koord(*words)
        assert done.exit_code == 0, done.output
        assert len(done.stderr.splitlines()) <= 1, done.stderr
        return done.stdout


def test_an_ordinary_user_gets_whole_answers(cluster: Cluster, tmp_path: Path) -> None:
    user, quotas = User(cluster, tmp_path), Quotas(cluster)
    cluster.add_nodes(3)
    quotas.create("team", 8, 16, namespaces=[cluster.namespace])
    cluster.gang("run", 1)
    cluster.expect_bound("run-0")
    cluster.gang("big", 2)
    cluster.gang("next", 3)
    cluster.expect_group("big", "InsufficientMax")
    cluster.expect_group("next", "RequestAboveMax")
    cluster.expect(lambda: quotas.status("team").get("used") == {GPU: "8"}, "the quota is reported")

    told = user.tell("explain", "big")
    assert f"quota {quotas.name('team')} may use at most 16 {GPU}, uses 8 and needs 16" in told
    assert "What would help" in told
    assert "ask the administrators to raise" in told
    assert "InsufficientMax" in user.tell("explain", "big-0", "--history")

    waiting = json.loads(user.tell("queue", "-o", "json"))["waiting"]
    assert [one["names"][0].partition("/")[2] for one in waiting] == ["big", "next"]
    first, second = waiting
    assert first["position"] < second["position"]
    assert second["gpusAhead"] >= first["gpusAhead"] + 16
    assert first["quotas"] == [quotas.name("team")]

    team = quotas.name("team")
    reads_quotas = (("quota", "tree"), ("top", "quotas"), ("quota", "explain", team))
    for words in (*reads_quotas, ("explain", team)):
        assert team in user.tell(*words), words
    assert "5 pods wait (RequestAboveMax 3, InsufficientMax 2)" in user.tell("status")
    (shown,) = json.loads(user.tell("quota", "tree", "-o", "json"))["quotas"]
    amounts = ("min", "max", "entitled", "used")
    assert [shown[name].get(GPU) for name in amounts] == ["8", "16", "16", "8"]

    envelope = json.loads(user.tell("explain", "big", "-o", "answer"))
    assert (envelope["answer"], envelope["asOf"]["source"]) == ("Explanation", "Reported")
    assert {gap["because"] for gap in envelope["gaps"]} == {"NoRight"}
    assert "pods of other namespaces" in {gap["missing"] for gap in envelope["gaps"]}
    assert envelope["value"]["reason"]["code"] == "InsufficientMax"

    no_rights = (
        ("preempt", "pg/big", "--dry-run"),
        ("what-if", "--drain", "nowhere"),
        ("quota", "what-if", team, "--max", f"{GPU}=64"),
        ("devices",),
        ("topology",),
        ("reservation", "list"),
        ("top",),
    )
    for words in no_rights:
        done = user.koord(*words)
        assert (done.exit_code, done.stdout) == (3, ""), words
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert "koord-user" in done.stderr
