"""Writes files that hold secrets: readable by their owner only, and never seen half written."""

import os
from pathlib import Path


def write_privately(path: Path, content: bytes) -> None:
    """Write the whole file at once."""
    partial = path.with_name(f".{path.name}.partial")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    partial.replace(path)
