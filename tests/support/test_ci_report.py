"""The report at the end of ``.ci/run``: the slowest tests, and those that needed a second try."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci" / "report.py"


def write_results(file: Path, **seconds: float) -> None:
    """Write a JUnit file of passed tests."""
    cases = (f'<testcase classname="tests.x" name="{n}" time="{s}"/>' for n, s in seconds.items())
    file.write_text(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>")


def report(folder: Path) -> tuple[int, list[str]]:
    command = [sys.executable, str(SCRIPT), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.splitlines()


def test_slowest_tests_of_all_files_come_first(tmp_path: Path) -> None:
    write_results(tmp_path / "unit.xml", fast=0.1, slow=7.0)
    write_results(tmp_path / "sandbox.xml", slower=12.0)
    code, lines = report(tmp_path)
    assert code == 0
    assert [line.split("::")[-1] for line in lines[1:4]] == ["slower", "slow", "fast"]


@pytest.mark.parametrize(("retried", "expected"), [(["a", "b"], 0), (["a", "b", "c"], 1)])
def test_more_than_two_retried_tests_fail_the_run(
    tmp_path: Path, retried: list[str], expected: int
) -> None:
    write_results(tmp_path / "sandbox.xml", a=1.0, b=1.0, c=1.0, d=1.0)
    write_results(tmp_path / "others-second-try.xml", **dict.fromkeys(retried[:1], 1.0))
    write_results(tmp_path / "sandbox-second-try.xml", **dict.fromkeys(retried[1:], 1.0))
    code, lines = report(tmp_path)
    assert code == expected
    assert [line.split("::")[-1] for line in lines[-len(retried) :]] == retried
