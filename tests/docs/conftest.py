"""A cluster with the operators running, for readers who follow the documentation."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.support.operators import KOORD, run_operators

from koord.sandbox import Sandbox
from koord.sandbox.binaries import KUBECTL


@pytest.fixture(scope="session")
def cluster() -> Iterator[Sandbox]:
    """A cluster of its own: the operators of these tests see all of it."""
    with Sandbox() as box:
        box.add_nodes(4, "a100x8")
        yield box


@pytest.fixture(scope="session")
def operators(cluster, tmp_path_factory) -> Iterator[None]:
    """All operators, run as the documentation says, until the end."""
    if subprocess.run([KOORD, "run", "--help"], capture_output=True, check=False).returncode:
        pytest.skip("this version has no `koord run`")
    cluster.apply(Path(__file__).parents[2] / "crds")
    with run_operators(cluster.kubeconfig, tmp_path_factory.mktemp("operators")):
        yield


@pytest.fixture
def reader(cluster, tmp_path) -> "Reader":
    """Somebody with a checkout, a kubeconfig and a namespace of their own."""
    return Reader(cluster, tmp_path)


class Reader:
    """Does what a page says, in a folder that looks like the checkout."""

    def __init__(self, cluster: Sandbox, home: Path) -> None:
        self.folder = home / "checkout"
        self.folder.mkdir()
        for entry in Path(__file__).parents[2].iterdir():
            if entry.name != ".git":
                (self.folder / entry.name).symlink_to(entry)
        self._namespace = f"reader-{home.name.replace('_', '-')}"[:63].strip("-").lower()
        cluster.create_namespace(self._namespace)
        kubectl = Path(cluster.record.programs[KUBECTL].path)
        cache = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))
        self._environment = os.environ | {
            "HOME": str(home),
            "KUBECONFIG": str(self._write_kubeconfig(cluster, home)),
            "PATH": os.pathsep.join([str(kubectl.parent), str(KOORD.parent), os.environ["PATH"]]),
            "XDG_CACHE_HOME": cache,
        }

    def write_file(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, encoding="utf-8")

    def run(self, command: str, text: str | None = None) -> str:
        """Run a command line as typed; return its output, fail with all that it said."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=self.folder,
            env=self._environment,
            input=text or "",
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        if done.returncode:
            pytest.fail(f"$ {command}\n{done.stdout}\nended with {done.returncode}", pytrace=False)
        return done.stdout

    def _write_kubeconfig(self, cluster: Sandbox, home: Path) -> Path:
        config = yaml.safe_load(cluster.kubeconfig.read_text(encoding="utf-8"))
        for context in config["contexts"]:
            context["context"]["namespace"] = self._namespace
        path = home / "kubeconfig"
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        return path
