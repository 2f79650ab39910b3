"""One process ends with another; neither is the parent of the other."""

import subprocess
import sys
from pathlib import Path

import pytest

from koord.demo import parent_watch

SLEEP = [sys.executable, "-c", "import time; time.sleep(100)"]


@pytest.fixture
def processes():
    """The one that is watched, and the one that is held."""
    started = [subprocess.Popen(SLEEP) for _ in range(2)]
    yield started
    for process in started:
        process.kill()
        process.wait()


def hold(*pids):
    command = [sys.executable, "-I", "-S", Path(parent_watch.__file__), *map(str, pids)]
    return subprocess.Popen(command)


def test_the_held_one_ends_with_the_watched_one(processes):
    watched, held = processes
    with hold(watched.pid, held.pid):
        watched.kill()
        assert held.wait(30) != 0


def test_a_watched_one_that_has_ended_already_counts(processes):
    watched, held = processes
    watched.kill()
    watched.wait()
    with hold(watched.pid, held.pid):
        assert held.wait(30) != 0


def test_it_ends_with_the_held_one_and_leaves_the_other(processes):
    watched, held = processes
    with hold(watched.pid, held.pid) as holder:
        held.kill()
        held.wait()
        assert holder.wait(30) == 0
    assert watched.poll() is None
