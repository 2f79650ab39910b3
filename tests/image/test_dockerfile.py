"""The text of the Dockerfile: linted, pinned, unprivileged, and as the manifests expect."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path, PurePosixPath

import pytest
import yaml
from tests.image.context import ROOT, is_sent, list_context
from tests.image.dockerfile import parse_dockerfile

import koord

HADOLINT = Path(sys.executable).parent / "hadolint"
TEXT = (ROOT / "Dockerfile").read_text(encoding="utf-8")
STAGES = parse_dockerfile(TEXT)
BUILD, FINAL = STAGES


def lint(text: str) -> str:
    command = [HADOLINT, "--no-color", "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False).stdout


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def container() -> dict:
    text = (ROOT / "manifests/process/deployment.yaml").read_text(encoding="utf-8")
    return yaml.safe_load(text)["spec"]["template"]["spec"]


def test_the_dockerfile_has_no_lint_problems():
    assert lint(TEXT) == ""


def test_the_linter_finds_a_problem():
    assert "DL3007" in lint("FROM python:latest\n")


def test_base_images_are_pinned_to_a_supported_python():
    tags = {re.fullmatch(r"python:(3\.\d+)-slim-\w+", stage.base)[1] for stage in STAGES}
    assert len(tags) == 1, "an environment only works with the Python that it was made with"
    least = project()["requires-python"].removeprefix(">=")
    assert tuple(map(int, tags.pop().split("."))) >= tuple(map(int, least.split(".")))


def test_it_runs_as_the_user_of_the_deployment():
    (user,) = FINAL.all("USER")
    context = container()["securityContext"]
    assert user.text == f"{context['runAsUser']}:{context['runAsGroup']}"
    assert context["runAsNonRoot"] is True
    assert context["runAsUser"] > 0


def test_nothing_runs_in_the_final_stage():
    """Commands of root could not be tested without a container."""
    assert FINAL.all("RUN") == []
    assert [one.options.get("from") for one in FINAL.all("COPY")] == [BUILD.name]


def test_the_entry_point_is_the_command_of_the_deployment():
    (entry,), (default,) = FINAL.all("ENTRYPOINT"), FINAL.all("CMD")
    deployed = container()["containers"][0]
    assert entry.words == deployed["command"]
    assert entry.words[0] in project()["scripts"]
    assert default.words == deployed["args"][:1]


@pytest.mark.parametrize(
    "pattern", ["Makefile", "README.md", "docs/**/*.md", "manifests/**/*.yaml"]
)
def test_tags_in_files_are_the_version_of_the_package(pattern):
    texts = [path.read_text(encoding="utf-8") for path in ROOT.glob(pattern)]
    tags = {tag for text in texts for tag in re.findall(r"\bkoord-operators:(\d[\w.]*)", text)}
    assert tags <= {koord.__version__}


def test_labels_describe_the_image():
    labels = FINAL.pairs("LABEL")
    arguments = FINAL.pairs("ARG")
    assert arguments["VERSION"] == project()["version"] == koord.__version__
    prefix = "org.opencontainers.image."
    assert all(label.startswith(prefix) for label in labels)
    assert labels[f"{prefix}title"] == project()["name"]
    assert labels[f"{prefix}licenses"] == project()["license"]
    assert labels[f"{prefix}version"] == "${VERSION}"


def test_packages_beside_have_the_same_license():
    """A copy each: a link leads nowhere in what is built of one of them."""
    text = (ROOT / "LICENSE").read_bytes()
    assert {path.read_bytes() for path in ROOT.glob("contrib/*/LICENSE")} == {text}
    assert len([*ROOT.glob("contrib/*/LICENSE")]) == len([*ROOT.glob("contrib/*/pyproject.toml")])


def test_the_build_context_is_exactly_what_is_copied():
    wanted = {
        word for one in BUILD.all("COPY") if "from" not in one.options for word in one.words[:-1]
    }
    context = list_context()
    assert wanted == {
        source for source in wanted for name in context if f"{name}/".startswith(f"{source}/")
    }
    others = [n for n in context if not any(f"{n}/".startswith(f"{s}/") for s in wanted)]
    assert others == []
    assert not any("__pycache__" in PurePosixPath(name).parts for name in context)


@pytest.mark.parametrize(
    ("name", "patterns", "sent"),
    [
        ("a", [], True),
        ("a/b", ["*"], False),
        ("a/b", ["*", "!a"], True),
        ("a/b", ["*", "!a/b"], True),
        ("a/c", ["*", "!a/b"], False),
        ("a/b", ["!a", "*"], False),
        ("a/x/y", ["*", "!a", "**/x"], False),
    ],
)
def test_the_last_matching_pattern_decides(name, patterns, sent):
    """Of our own implementation; the builder's is not available here."""
    assert is_sent(name, patterns) is sent
