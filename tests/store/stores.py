"""Stores in a folder of a test, and lines as the feed of a leader has them."""

import json
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from koord.answers.audit import to_text
from koord.core.usage.segments import Window
from koord.store.days import DAY_MS
from koord.store.keeper import RecordStore
from koord.store.reading import WHOLE, StoreReader
from koord.store.retention import Keep

EPOCH = 1_795_000_000_000 - 1_795_000_000_000 % DAY_MS
"""A midnight of 2026."""
ALWAYS = Window(0, 1 << 52)
FEW: Final = 20
"""Examples of a law in every run: each makes a file."""
_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - folders of their own are made in it


@contextmanager
def new_path() -> Iterator[Path]:
    """Yield where an example may have its store; in memory, where that is a folder."""
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
        yield Path(folder) / "see.db"


def make_line(seq: int, at: int = EPOCH, kind: str = "Attempt", **fields: Any) -> bytes:
    """Return a line about the unit ``name`` of ``namespace``."""
    namespace, name = fields.pop("namespace", "team-a"), fields.pop("name", "train")
    document = {
        "term": fields.pop("term", 1),
        "seq": seq,
        "at": to_text(at),
        "mono": 0,
        "kind": kind,
        "unit": {
            "key": f"{namespace}/{name}",
            "namespace": namespace,
            "names": [f"{namespace}/{name}"],
            "owner": {"kind": "Job", "name": f"{name}-job", "uid": "u"},
            "uids": [],
            "pods": 1,
            "required": 1,
        },
        "trace": f"uid-{namespace}-{name}",
        "code": "InsufficientNodes",
        "repeats": 0,
        "closed": None,
        **fields,
    }
    return json.dumps(document).encode()


def open_store(path: Path, now: float = EPOCH / 1000, **options: Any) -> RecordStore:
    """Open a store that writes as soon as it can; ``now`` in seconds stands still."""
    keep = options.pop("keep", Keep())
    return RecordStore(path, "test", keep, lambda: now, batch_seconds=0.0, **options)


def fill(path: Path, lines: Iterable[bytes], term: int = 1, **options: Any) -> None:
    with open_store(path, **options) as store:
        store.append(term, "leader-a", lines).result()


def read_all(path: Path) -> list[dict[str, Any]]:
    return [dict(each) for each in StoreReader(path).records(ALWAYS, bounds=WHOLE).rows]
