"""Names that do not exist: every command says which may be meant, with ``koord`` on the sandbox."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.operators.test_everyday import koord
from tests.operators.test_quotas import Quotas
from typer.testing import CliRunner

from koord.cli.main import app

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.operators.conftest import Cluster

RESERVATIONS = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"


@pytest.fixture
def furnished(quiet_cluster: Cluster) -> Iterator[Cluster]:
    """Something of every kind that can be named."""
    cluster = quiet_cluster
    cluster.pod_group("train", 2)
    cluster.pod("train-0", group="train")
    cluster.suspended_job("trainer")
    quotas = Quotas(cluster)
    quotas.create("research", 0, 8)
    template = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    owners = [{"object": {"name": "x", "namespace": cluster.namespace}}]
    spec = {"template": template, "owners": owners, "ttl": "1h"}
    name = f"{cluster.namespace}-held"
    body = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": name},
        "spec": spec,
    }
    cluster.box.client.create(RESERVATIONS, body)
    yield cluster
    cluster.box.client.delete(f"{RESERVATIONS}/{name}")
    quotas.delete("research")


def test_similar_names_are_suggested(furnished: Cluster) -> None:
    space = furnished.namespace
    quota = f"{space}-research"
    for words, meant in (
        ("explain pod/trian-0", "did you mean train-0?"),
        ("explain pg/trian", "did you mean train?"),
        ("explain job/trianer", "did you mean trainer?"),
        ("preempt job/trianer --dry-run", "did you mean trainer?"),
        (f"explain rsv/{space}-hold", f"did you mean {space}-held?"),
        (f"explain eq/{quota}s", f"did you mean {quota}?"),
        ("preempt pod/trian-0 --dry-run", "did you mean train-0?"),
        ("preempt pg/trian --dry-run", "did you mean train?"),
        (f"preempt rsv/{space}-hold --dry-run", f"did you mean {space}-held?"),
        ("release trian --yes", "did you mean train or train-0?"),
        (f"quota explain {quota}s", f"did you mean {quota}?"),
        (f"quota what-if {quota}s -r cpu=1", f"did you mean {quota}?"),
        (f"reservation explain {space}-hold --pod {space}/train-0", f"did you mean {space}-held?"),
    ):
        where = () if words.startswith("reservation") else ("-n", space)
        done = koord(furnished, *words.split(), *where)
        assert (done.exit_code, meant in done.stderr) == (2, True), (words, done.output)


@pytest.mark.parametrize("words", ["queue", "quota tree", "top quotas", "watch"])
def test_namespaces_that_do_not_exist_are_named(furnished: Cluster, words: str) -> None:
    typed = f"{furnished.namespace}x"
    done = koord(furnished, *words.split(), "-n", typed)
    assert done.exit_code == 2, done.output
    assert f"there is no namespace {typed}; did you mean {furnished.namespace}" in done.stderr


@pytest.mark.parametrize(
    "words", ["explain eq/{}", "quota explain {}", "quota what-if {} -r cpu=1"]
)
def test_a_quota_of_another_namespace_is_not_shown(furnished: Cluster, words: str) -> None:
    space = furnished.namespace
    quota = f"{space}-research"
    named = words.format(quota).split()
    assert koord(furnished, *named, "-n", space).exit_code == 0
    done = koord(furnished, *named, "-n", "default")
    assert done.exit_code == 2
    assert f"there is no quota {quota} in namespace default; there is one in {space}" in done.stderr


def test_contexts_and_files_that_do_not_exist_are_named(furnished: Cluster) -> None:
    done = koord(furnished, "queue", "--context", "sandbx")
    assert done.exit_code == 3
    assert "has no context sandbx; there are: " in done.stderr
    path = furnished.box.directory / "nowhere.kubeconfig"
    done = CliRunner().invoke(app, ["queue", "--kubeconfig", str(path)])
    assert (done.exit_code, "does not exist" in done.stderr) == (3, True)
