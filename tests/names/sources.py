"""The modules of the package ``koord``, parsed once for all tests of names."""

import ast
from functools import cache
from pathlib import Path

_SOURCES = Path(__file__).parents[2] / "operators"


@cache
def read_modules() -> dict[str, ast.Module]:
    """Return the modules by their full names."""
    trees = {}
    for path in sorted(_SOURCES.rglob("*.py")):
        parts = path.relative_to(_SOURCES).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        trees[name] = ast.parse(path.read_text(encoding="utf-8"))
    return trees
