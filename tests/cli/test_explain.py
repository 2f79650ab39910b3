"""The command line of `koord explain`: valid and invalid arguments."""

import pytest
from typer.testing import CliRunner

import koord.cli.explain_view
from koord.answers.reading import TargetKind
from koord.cli.explain_view import Question
from koord.cli.main import app

POD, GROUP = TargetKind.POD, TargetKind.POD_GROUP


@pytest.mark.parametrize(
    ("typed", "question"),
    [
        ("pod a/x", Question(POD, "a", "x")),
        ("pod x", Question(POD, "", "x")),
        ("po x -n a", Question(POD, "a", "x")),
        ("pods x --namespace a", Question(POD, "a", "x")),
        ("pod a/x -n a", Question(POD, "a", "x")),
        ("pod/x", Question(POD, "", "x")),
        ("pod/a/x", Question(POD, "a", "x")),
        ("POD x", Question(POD, "", "x")),
        ("podgroup x", Question(GROUP, "", "x")),
        ("pg a/x", Question(GROUP, "a", "x")),
        ("podgroups.scheduling.sigs.k8s.io/x", Question(GROUP, "", "x")),
        ("job/x", Question(TargetKind.JOB, "", "x")),
        ("sts x", Question(TargetKind.STATEFUL_SET, "", "x")),
        ("deploy/a/x", Question(TargetKind.DEPLOYMENT, "a", "x")),
        ("rs/x", Question(TargetKind.REPLICA_SET, "", "x")),
        ("jobset x", Question("jobset", "", "x")),
        ("PyTorchJob/a/x", Question("pytorchjob", "a", "x")),
        ("pytorchjobs.kubeflow.org/x -n a", Question("pytorchjobs.kubeflow.org", "a", "x")),
        ("pg/x --context c --kubeconfig f", Question(GROUP, "", "x", "f", "c")),
    ],
)
def test_valid_arguments(typed: str, question: Question, monkeypatch) -> None:
    questions = []
    monkeypatch.setattr(
        koord.cli.explain_view,
        "ask",
        lambda question_asked, *_, **__: questions.append(question_asked),
    )
    done = CliRunner().invoke(app, ["explain", *typed.split()])
    assert done.exit_code == 0, done.stderr
    assert questions == [question]


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("a_b x", "there is no kind 'a_b'"),
        ("a/b/c/d", "give a NAME, NAMESPACE/NAME or KIND/NAME"),
        ("a/b/x -n c", "b/x is not in namespace c"),
        ("pod", "give a NAME"),
        ("pod/", "give a NAME"),
        ("pod a/b/c", "give a NAME"),
        ("pod /x", "give a NAME"),
        ("pod a/x -n b", "a/x is not in namespace b"),
        ("pod x --output xml", "xml"),
    ],
)
def test_invalid_arguments_are_usage_errors(typed: str, message: str) -> None:
    done = CliRunner().invoke(app, ["explain", *typed.split()])
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.replace("│", " ").split())


@pytest.mark.parametrize("command", [["explain", "pod", "x"], ["version", "--server"]])
def test_without_a_usable_configuration(command: list[str], tmp_path) -> None:
    path = tmp_path / "nothing"
    done = CliRunner().invoke(app, [*command, f"--kubeconfig={path}"])
    assert done.exit_code == 3
    assert str(path) in done.stderr
    assert "Traceback" not in done.stderr
