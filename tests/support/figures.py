"""Writes down what long tests saw, where the benchmarks write theirs."""

import json
from pathlib import Path
from typing import Any

DIRECTORY = Path(__file__).parents[2] / "build" / "faults"


def write_figures(name: str, figures: dict[str, Any]) -> None:
    """Write the figures of one scenario to ``build/faults/NAME.json``."""
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    (DIRECTORY / f"{name}.json").write_text(json.dumps(figures, indent=1) + "\n")
