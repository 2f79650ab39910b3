"""The jobs of ``.ci/run``."""

import importlib.util
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import CLUSTER_FOLDERS

ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("ci_jobs", ROOT / ".ci" / "jobs.py")
assert spec is not None
assert spec.loader is not None
jobs = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = jobs  # dataclasses look their module up
spec.loader.exec_module(jobs)


def test_each_test_file_that_may_use_a_cluster_is_in_one_job() -> None:
    job_files = Counter(file for job in jobs.make_jobs() for file in job.files)
    files = {
        str(path.relative_to(ROOT))
        for path in ROOT.glob("tests/**/test_*.py")
        if path.relative_to(ROOT).parts[1] not in jobs.WITHOUT_CLUSTER
    }
    assert files
    assert job_files == Counter(files)


def test_folders_that_no_job_has_are_without_tests_of_a_cluster(
    pytestconfig: pytest.Config,
) -> None:
    assert jobs.WITHOUT_CLUSTER.isdisjoint(pytestconfig.stash[CLUSTER_FOLDERS])


def test_what_a_job_needs_is_built() -> None:
    assert {name for job in jobs.make_jobs() for name in job.needs} == set(jobs.BUILDS)


def test_lengthy_files_are_in_different_jobs_as_far_as_that_goes() -> None:
    counts = [sum(file in jobs.LENGTHY for file in job.files) for job in jobs.make_jobs()]
    assert sum(counts) == len(jobs.LENGTHY)
    assert max(counts) <= -(-len(jobs.LENGTHY) // jobs.PARTS["cluster"])


def test_names_of_jobs_are_unique() -> None:
    names = Counter(job.name for job in jobs.make_jobs())
    assert max(names.values()) == 1


def test_the_output_of_what_fails_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runner = jobs.Runner(tmp_path)
    assert runner.run("good", (sys.executable, "-c", "print('fine')")) == 0
    assert runner.run("bad", (sys.executable, "-c", "print('why'); raise SystemExit(3)")) == 3
    printed = capsys.readouterr().out
    assert "why" in printed
    assert "fine" not in printed


def test_nothing_starts_after_the_end(tmp_path: Path) -> None:
    runner = jobs.Runner(tmp_path)
    runner.end()
    assert runner.run("late", (sys.executable, "-c", "")) != 0
    assert not (tmp_path / "late.log").exists()


def run_all(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, **codes: int
) -> tuple[int, dict[str, int]]:
    """Run everything with commands that end with these codes; return code and what ran, by name."""
    order: list[str] = []

    def run(runner: Any, name: str, _: object) -> int:
        if not runner._is_over.is_set():
            order.append(name)
        return codes.get(name, 0)

    monkeypatch.setattr(jobs.Runner, "run", run)
    monkeypatch.setattr(jobs.Runner, "end", lambda runner: runner._is_over.set())
    return jobs.main(tmp_path), {name: at for at, name in enumerate(order)}


def test_all_is_run_and_what_is_needed_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    code, order = run_all(monkeypatch, tmp_path)
    assert code == 0
    assert order.keys() == {"check", *jobs.BUILDS, *(job.name for job in jobs.make_jobs())}
    for job in jobs.make_jobs():
        assert all(order[need] < order[job.name] for need in job.needs)


@pytest.mark.parametrize("failing", ["check", "programs", "helm", "site", "sandbox-docs"])
def test_a_failure_fails_the_run(
    failing: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    codes = {failing: 1, f"{failing}-second-try": 1}
    code, order = run_all(monkeypatch, tmp_path, **codes)
    assert code == 1
    for job in jobs.make_jobs():
        assert failing not in job.needs or job.name not in order
