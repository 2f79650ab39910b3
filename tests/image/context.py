"""The build context of the image: the files of the checkout that .dockerignore includes."""

import shutil
import subprocess
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]


def list_context() -> list[str]:
    """Return the files that are sent to the builder, those ignored by git included."""
    listing = ["git", "ls-files", "--cached", "--others", "-z"]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    patterns = read_patterns()
    found = (name for name in names.split("\0") if name and (ROOT / name).is_file())
    return sorted({name for name in found if is_sent(name, patterns)})


def read_patterns() -> list[str]:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def is_sent(name: str, patterns: list[str]) -> bool:
    """Whether a file is sent: the last pattern that matches it, or its directory, decides."""
    parents = [str(one) for one in PurePosixPath(name).parents if one.name]
    sent = True
    for pattern in patterns:
        bare = pattern.removeprefix("!")
        if any(_is_match(one, bare) for one in (name, *parents)):
            sent = pattern.startswith("!")
    return sent


def _is_match(path: str, pattern: str) -> bool:
    if pattern.startswith("**/"):
        return fnmatchcase(PurePosixPath(path).name, pattern[3:])
    return path.count("/") == pattern.count("/") and fnmatchcase(path, pattern)


def copy_context(target: Path) -> None:
    for name in list_context():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target / name)
