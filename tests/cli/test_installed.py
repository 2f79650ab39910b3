"""Commands of other packages: found when installed; where they are is told when not."""

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from typer.testing import CliRunner

from koord.cli import installed
from koord.cli.main import app, list_names
from koord.cli.reference import list_commands

ROOT = Path(__file__).parents[2]
CONTRIB = ("demo", "migrate", "sandbox")


@pytest.fixture
def without_contrib(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation of koord alone, as in the image."""
    monkeypatch.setattr(installed, "entry_points", lambda **_: ())
    installed.find_installed.cache_clear()
    yield
    installed.find_installed.cache_clear()


def test_the_packages_name_their_commands() -> None:
    found = {one.name: one.value for one in entry_points(group="koord.commands")}
    assert found == {
        "demo": "koord_sandbox.cli:demo",
        "migrate": "koord_migrate.cli:migrate",
        "sandbox": "koord_sandbox.cli:sandbox",
    }


@pytest.mark.usefixtures("without_contrib")
@pytest.mark.parametrize("arguments", [["migrate", "a"], ["sandbox", "up"], ["demo", "--keep"]])
def test_a_command_that_is_not_installed_says_how_to_install_it(arguments: list[str]) -> None:
    folder = {"migrate": "contrib/migrate"}.get(arguments[0], "contrib/sandbox")
    done = CliRunner().invoke(app, arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == (
        f"error: koord {arguments[0]} is in a package of its own, which is not installed. "
        f"To install it, in a checkout of koord-operators: pip install ./{folder}\n"
    )
    assert (ROOT / folder / "pyproject.toml").is_file()


@pytest.mark.usefixtures("without_contrib")
def test_what_is_not_installed_is_not_listed() -> None:
    assert not set(CONTRIB) & set(list_names())
    shown = CliRunner().invoke(app, ["--help"]).stdout
    assert "explain" in shown
    assert "sandbox" not in shown
    assert "koord explain" in {entry.key for entry in list_commands()}


PACKAGE = {
    "hello.py": """
import typer

def hello(name: str) -> None:
    "Greet."
    typer.echo(f"hello {name}")

def run() -> None:
    "Not what koord runs."
""",
    "hello-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: hello\nVersion: 1\n"
    "Summary: Says hello.\n",
    "hello-1.dist-info/entry_points.txt": "[koord.commands]\nhello = hello:hello\n"
    "broken = hello:nothing\nrun = hello:run\n",
}


@pytest.fixture
def other_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that is installed beside koord, in this process too."""
    for name, text in PACKAGE.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    installed.find_installed.cache_clear()
    yield tmp_path
    installed.find_installed.cache_clear()
    sys.modules.pop("hello", None)


def test_a_command_of_any_package_is_listed_and_runs(other_package: Path) -> None:
    assert "hello         Says hello." in CliRunner().invoke(app, ["--help"]).stdout
    assert "hello" not in sys.modules, "it is imported when it runs"
    assert CliRunner().invoke(app, ["hello", "you"]).stdout == "hello you\n"
    assert "hello" in CliRunner().invoke(app, ["hello", "--help"]).stdout
    done = subprocess.run(
        [sys.executable, "-m", "koord", "hello", "you"],
        env=os.environ | {"PYTHONPATH": str(other_package)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("hello you\n", "")


@pytest.mark.usefixtures("other_package")
def test_no_package_takes_the_place_of_a_command_of_koord() -> None:
    assert "Not what koord runs." not in CliRunner().invoke(app, ["run", "--help"]).stdout


@pytest.mark.usefixtures("other_package")
def test_a_command_that_cannot_be_imported_names_its_package() -> None:
    done = CliRunner().invoke(app, ["broken"])
    assert done.exit_code == 2
    assert done.stderr.startswith("error: koord broken of hello cannot be imported: ")
    assert "Traceback" not in done.stderr
