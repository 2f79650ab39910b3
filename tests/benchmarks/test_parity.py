"""Feasible nodes of pods: the same as for a real kube-scheduler, on random clusters."""

import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.parity.mutants import MUTANTS

ROOT = Path(__file__).parents[2]


def compare(*options: str) -> str:
    command = [sys.executable, "-m", "benchmarks.parity", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    return done.stdout


@pytest.mark.sandbox
def test_feasible_nodes_are_those_of_kube_scheduler():
    assert "100 pods on 12 nodes each: 1200 pairs" in compare("--pairs", "1200", "--pods", "100")


@pytest.mark.sandbox
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_feasible_nodes_are_those_of_kube_scheduler_and_every_mutant_is_detected():
    assert "10560 pairs" in compare("--pairs", "10560", "--mutants")


def test_every_mutant_replaces_a_function_that_exists():
    gone = [name for name, one in MUTANTS.items() if not hasattr(one.owner, one.name)]
    assert gone == []
