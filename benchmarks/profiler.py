"""Where the operators spend their time: py-spy, if it is installed."""

import shutil
import signal
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Final, Self

_RATE: Final = "200"


class Profiler:
    """Records one profile per scenario into ``directory``, as folded stacks."""

    def __init__(self, directory: Path) -> None:
        found = shutil.which("py-spy")
        if found is None:
            raise FileNotFoundError("py-spy is not on the PATH: pip install py-spy")
        self._command = found
        self._directory = directory
        self._running: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        self._directory.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for one in self._running:
            one.send_signal(signal.SIGINT)  # it then writes its samples
            one.wait()

    def attach(self, name: str, pid: int) -> None:
        """Record a process until it ends."""
        target = self._directory / f"{name}.folded"
        options = ["--format", "raw", "--rate", _RATE, "--output", str(target), "--pid", str(pid)]
        self._running.append(
            subprocess.Popen(
                [self._command, "record", *options],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )
