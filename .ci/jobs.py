"""Runs all tests as jobs, some at the same time, and prints what each took.

A job is one process of pytest for a few files, with control planes of its own. More jobs than run
at once keep the processors busy to the end, without a split that somebody has to balance: much of
the time of a test against a real server is waiting. (Workers of pytest-xdist would each start every
kind of control plane.) The checks without a cluster run beside them; their failure ends the run.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
AT_ONCE = 5
"""The checks without a cluster are one of them; they use more than one processor."""
PARTS = {"cluster": 6}
"""Groups of tests that are more than one job, and how many."""
GROUPS = {
    "operators": "cluster",
    "cases": "cluster",
    "attacks": "cluster",
    "docs": "docs",
    "manifests": "manifests",
    "kube": "kube",
    "benchmarks": "kube",
    "model": "kube",
}
"""Folders whose tests use the same control planes; those of all others are one group."""
# fmt: off
WITHOUT_CLUSTER = frozenset([
    "agent", "audit", "colocation", "conformance", "controllers", "core", "defrag", "device",
    "eviction", "framework", "fuzz", "gang", "image", "isolation", "load", "maintenance", "migrate",
    "migration", "names", "numa", "page", "placement", "preemption", "profiles", "queue", "quota",
    "recorded", "replay", "reservation", "see", "store", "support", "suspend", "text",
    "topology",
])
# fmt: on
"""Folders in which no test uses a control plane: collecting them takes ten seconds."""
UNPROTECTED = "unprotected"
"""The name of the fixtures of a second control plane, which few files of the cluster use."""
LONGEST_FIRST = ("docs", "manifests", "others", "kube", "cluster", UNPROTECTED)
LENGTHY = (
    "tests/cases/test_members_ended.py",
    "tests/operators/test_discovery.py",
    "tests/operators/test_tenants_quotas.py",
    "tests/operators/test_restart.py",
    "tests/operators/test_preemption.py",
    "tests/cases/test_first_preemption.py",
    "tests/operators/test_reclaim.py",
    "tests/operators/test_device_plugins.py",
)
"""Files that take the longest: they are dealt to the parts of their group before the others."""
PROGRAMS = "programs"
NEEDS = {"docs": "site", "manifests": "helm"}
"""Group of tests -> what has to be built for it besides the programs of a control plane."""
BUILDS = {
    PROGRAMS: (".venv/bin/koord", "sandbox", "build"),
    "helm": (".venv/bin/python", "-m", "tests.support.helm"),
    "site": ("nice", "make", "site"),
}
"""Building takes minutes the first time; tests start when they have what they need."""
PYTEST = (".venv/bin/pytest", "-m", "sandbox and not slow")
ENVIRONMENT = os.environ | {"GOGC": "400"}
"""Control planes collect garbage less often: a tenth of their time, for 200 MB of memory each."""
AGAIN = ("--last-failed", "--last-failed-no-failures=none")


@dataclass(frozen=True)
class Job:
    """Test files, relative to the checkout, that one process runs."""

    name: str
    files: tuple[str, ...]
    needs: tuple[str, ...]
    """What has to be built first."""


def make_jobs(root: Path = ROOT) -> list[Job]:
    """Return jobs that together have each test file once that may use a control plane."""
    files = sorted(str(path.relative_to(root)) for path in root.glob("tests/**/test_*.py"))
    groups: dict[str, list[str]] = {}
    for file in files:
        folder = file.split("/")[1]
        if folder in WITHOUT_CLUSTER:
            continue
        group = GROUPS.get(folder, "others")
        if group == "cluster" and UNPROTECTED in (root / file).read_text(encoding="utf-8"):
            group = UNPROTECTED
        groups.setdefault(group, []).append(file)
    return [job for group in LONGEST_FIRST for job in _split(group, groups.get(group, []))]


def _split(group: str, files: Sequence[str]) -> Iterator[Job]:
    count = PARTS.get(group, 1)
    files = sorted(files, key=lambda file: file not in LENGTHY)
    for part in range(count):
        number = "" if count == 1 else f"-{part + 1}"
        needs = (PROGRAMS, *filter(None, [NEEDS.get(group)]))
        yield Job(f"sandbox-{group}{number}", tuple(files[part::count]), needs)


class Runner:
    """Runs commands whose output goes to ``results``; one that must not fail ends the others."""

    def __init__(self, results: Path) -> None:
        self._results = results
        self._running: set[subprocess.Popen[bytes]] = set()
        self._is_over = threading.Event()

    def run_tests(self, job: Job) -> bool:
        """Run a job, and those that failed once more; return whether all passed in the end.

        A real process can miss a deadline on a loaded machine; report.py counts second tries.
        """
        options = (*PYTEST, "-o", f"cache_dir={self._results / job.name}.cache", *job.files)
        results = f"--junit-xml={self._results / job.name}.xml"
        # 5 is pytest's "no tests were collected".
        if self.run(job.name, (*options, results)) in (0, 5):
            return True
        results = f"--junit-xml={self._results / job.name}-second-try.xml"
        return self.run(f"{job.name}-second-try", (*options, *AGAIN, results)) == 0

    def run(self, name: str, command: Sequence[str]) -> int:
        """Run a command; print its seconds and, if it fails, its output."""
        if self._is_over.is_set():
            return -1
        log = self._results / f"{name}.log"
        began = time.monotonic()
        with log.open("wb") as file:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=ENVIRONMENT,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._running.add(process)
            _, status, usage = os.wait4(process.pid, 0)
            self._running.discard(process)
        code = process.returncode = os.waitstatus_to_exitcode(status)
        wall, busy = time.monotonic() - began, usage.ru_utime + usage.ru_stime
        failed = code not in (0, 5) and not self._is_over.is_set()
        output = log.read_text(errors="replace") if failed else ""
        print(
            f"{output}{name}: exit {code}, {wall:.0f} s, of the processors {busy:.0f} s", flush=True
        )
        return code

    def end(self) -> None:
        """End all that runs, and start nothing more."""
        self._is_over.set()
        for process in list(self._running):
            os.killpg(process.pid, 15)


def main(results: Path) -> int:
    runner = Runner(results)

    def check() -> bool:
        if runner.run("check", ("make", "check")) == 0:
            return True
        runner.end()
        return False

    with ThreadPoolExecutor() as pool, ThreadPoolExecutor(AT_ONCE) as few:
        checks = few.submit(check)
        builds = {name: pool.submit(runner.run, name, command) for name, command in BUILDS.items()}

        def test(job: Job) -> bool:
            if any(builds[name].result() for name in job.needs):
                runner.end()
                return False
            return runner.run_tests(job)

        tests = [few.submit(test, job) for job in make_jobs()]
        is_built = not any(build.result() for build in builds.values())
        return int(not (is_built and all(passed.result() for passed in (checks, *tests))))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
