"""Which pods ``koord release`` means by a name."""

import pytest
import typer
from typer.testing import CliRunner

from koord.api.keys import gang
from koord.cli.main import app
from koord.cli.release import ReleaseRequest, _choose, _GatedPod, _GatedPodSpec
from koord.kube.wire import WireObjectMeta


def make(name: str, group: str = "", job: str = "") -> _GatedPod:
    labels = {gang.POD_GROUP: group, "batch.kubernetes.io/job-name": job}
    written = {key: value for key, value in labels.items() if value}
    return _GatedPod(WireObjectMeta(name=name, namespace="t", labels=written), _GatedPodSpec())


PODS = (make("a-0", "bert", "train"), make("a-1", "bert", "train"), make("train"), make("b"))


@pytest.mark.parametrize(
    ("kind", "name", "names"),
    [
        ("", "train", ["a-0", "a-1", "train"]),
        ("job", "train", ["a-0", "a-1"]),
        ("pod", "train", ["train"]),
        ("podgroup", "bert", ["a-0", "a-1"]),
        ("", "", ["a-0", "a-1", "train", "b"]),
    ],
)
def test_names(kind: str, name: str, names: list[str]) -> None:
    chosen = _choose(PODS, ReleaseRequest(kind, name, "", "", everywhere=False))
    assert [pod.metadata.name for pod in chosen] == names


def test_an_unknown_job_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit):
        _choose(PODS, ReleaseRequest("job", "trian", "", "", everywhere=False))
    assert "no job here is named trian; did you mean train?" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["node/n", "eq/x", "reservation/x", "a_b/x"])
def test_other_kinds_are_refused(name: str) -> None:
    assert CliRunner().invoke(app, ["release", name]).exit_code == 2
