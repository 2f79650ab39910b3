"""A process ends with another one that is not its parent."""

import subprocess
import sys
from pathlib import Path

import pytest

from koord_sandbox.demo import parent_watch

SLEEP = [sys.executable, "-c", "import time; time.sleep(100)"]


@pytest.fixture
def processes():
    """The watched process and the held one."""
    started = [subprocess.Popen(SLEEP) for _ in range(2)]
    yield started
    for process in started:
        process.kill()
        process.wait()


def hold(*pids):
    command = [sys.executable, "-I", "-S", Path(parent_watch.__file__), *map(str, pids)]
    return subprocess.Popen(command)


def test_the_held_process_ends_with_the_watched_one(processes):
    watched, held = processes
    with hold(watched.pid, held.pid):
        watched.kill()
        assert held.wait(30) != 0


def test_the_held_process_ends_if_the_watched_one_had_ended(processes):
    watched, held = processes
    watched.kill()
    watched.wait()
    with hold(watched.pid, held.pid):
        assert held.wait(30) != 0


def test_the_watcher_ends_with_the_held_process(processes):
    watched, held = processes
    with hold(watched.pid, held.pid) as holder:
        held.kill()
        held.wait()
        assert holder.wait(30) == 0
    assert watched.poll() is None
