"""Commands that are forked: they end, print and are ended as those that a shell starts."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from tests.support.forked_koord import find_koord
from tests.support.operators import KOORD


@pytest.mark.parametrize(
    "arguments", [("--version",), ("quota", "--help"), ("lint", "-"), ("lint", "none"), ("no",)]
)
def test_it_prints_and_ends_as_the_installed_command(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    def run(program: Path) -> tuple[int, str, str]:
        done = subprocess.run(
            [program, *arguments],
            cwd=tmp_path,
            env=os.environ | {"COLUMNS": "90"},
            input="kind: Pod\nmetadata: {name: x}\n",
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    assert run(find_koord()) == run(KOORD)


def is_read(fifo: Path) -> bool:
    try:
        os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_it_is_ended_by_a_signal(number: signal.Signals, tmp_path: Path) -> None:
    os.mkfifo(config := tmp_path / "config")
    with (
        subprocess.Popen([find_koord(), "run", "--config", config]) as client,
        config.open("wb"),  # the command has opened it, and reads
    ):
        client.send_signal(number)
        assert client.wait(60) == -number
    while is_read(config):
        time.sleep(0.02)
