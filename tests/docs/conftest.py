"""A cluster with running operators, in which the commands of the documentation are run."""

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.support.forked_koord import find_koord
from tests.support.namespaces import empty
from tests.support.operators import KOORD, run_operators

from koord_sandbox import Sandbox
from koord_sandbox.binaries import KUBECTL

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def cluster() -> Iterator[Sandbox]:
    """A sandbox for these tests only, because the operators see all of it."""
    with Sandbox() as box:
        box.add_nodes(16, "a100x8")
        yield box


@pytest.fixture(scope="session")
def operators(cluster, tmp_path_factory) -> Iterator[None]:
    """All operators, started as documented."""
    cluster.apply(ROOT / "crds")
    cluster.kubectl("apply", "-k", str(ROOT / "manifests/base"))
    kubeconfig = cluster.kubeconfig_for("koord-system", "koord-operators")
    with run_operators(kubeconfig, tmp_path_factory.mktemp("operators")):
        yield


@pytest.fixture
def reader(cluster, tmp_path) -> Iterator["Reader"]:
    """A shell with a checkout, a kubeconfig and a namespace of its own."""
    one = Reader(cluster, tmp_path)
    yield one
    if one.has_sandboxes:
        one.run(["koord sandbox down --all"])
    empty(cluster.client, one.namespace)


def copy_checkout(target: Path) -> None:
    """Copy tracked and untracked files that git does not ignore; link the installed tools."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in (one for one in names.split("\0") if (ROOT / one).is_file()):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target / name)
    for installed in (".venv", ".tools"):
        (target / installed).symlink_to(ROOT / installed)
    # Older than what is installed: make would install the copy in place of this checkout.
    projects = [target / "pyproject.toml", *target.glob("contrib/*/pyproject.toml")]
    for path in (*projects, target / "uv.lock", target / "tools/uv.txt"):
        os.utime(path, (0, 0))


class Reader:
    """Runs the commands of a page in a copy of the checkout."""

    def __init__(self, cluster: Sandbox, home: Path) -> None:
        self.folder = home / "checkout"
        copy_checkout(self.folder)
        self.namespace = f"reader-{home.name.replace('_', '-')}"[:63].strip("-").lower()
        cluster.create_namespace(self.namespace)
        kubectl = Path(cluster.record.programs[KUBECTL].path)
        cache = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))
        self._state = home / "state"
        self._environment = os.environ | {
            "HOME": str(home),
            "KUBECONFIG": str(self._write_kubeconfig(cluster, home)),
            "PATH": os.pathsep.join(
                map(str, (find_koord().parent, kubectl.parent, KOORD.parent, os.environ["PATH"]))
            ),
            "XDG_CACHE_HOME": cache,
            "XDG_STATE_HOME": str(self._state),
        }

    @property
    def has_sandboxes(self) -> bool:
        return self._state.exists()

    def write_file(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def run(self, commands: list[str], text: str = "") -> str:
        """Run commands in one shell, return all output; fail with it if one fails."""
        shown = (f"printf '%s\\n' {shlex.quote('$ ' + one)}\n{one}" for one in commands)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", "\n".join(shown)],
            cwd=self.folder,
            env=self._environment,
            input=text,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        if done.returncode:
            pytest.fail(f"{done.stdout}\nended with {done.returncode}", pytrace=False)
        return done.stdout

    def _write_kubeconfig(self, cluster: Sandbox, home: Path) -> Path:
        config = yaml.safe_load(cluster.kubeconfig.read_text(encoding="utf-8"))
        for context in config["contexts"]:
            context["context"]["namespace"] = self.namespace
        path = home / "kubeconfig"
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        return path
