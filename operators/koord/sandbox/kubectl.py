"""Runs kubectl against one sandbox, untouched by the user's own configuration."""

import os
import subprocess
from pathlib import Path

from koord.sandbox.errors import KubectlError

_CRD_PREFIX = "customresourcedefinition.apiextensions.k8s.io/"


class Kubectl:
    """The kubectl of one sandbox, as its administrator."""

    def __init__(self, binary: Path, kubeconfig: Path, home: Path) -> None:
        self._command = [str(binary), f"--kubeconfig={kubeconfig}", f"--cache-dir={home / 'cache'}"]
        self._home = home

    def run(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl and return its output; raise `KubectlError` with its complaint."""
        done = subprocess.run(
            [*self._command, *arguments],
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            env={**os.environ, "HOME": str(self._home)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise KubectlError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def apply(self, path: Path, *, server_side: bool) -> list[str]:
        """Apply a file, or all files below a directory; return the names of the CRDs among it."""
        # Conflicts are ours to win: what is applied here is the source of truth.
        mode = ["--server-side", "--force-conflicts"] if server_side else []
        output = self.run("apply", "--recursive", f"--filename={path}", "--output=name", *mode)
        return [
            line.removeprefix(_CRD_PREFIX)
            for line in output.split()
            if line.startswith(_CRD_PREFIX)
        ]
