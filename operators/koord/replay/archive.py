"""The file of a snapshot: a tar, compressed with gzip, of a few JSON documents with known names.

Files come from strangers, so nothing of one is written to disk, what it unpacks to is bounded
before it is looked at, and a name that is not expected is refused. Knows what files are called, and
nothing of what is in them.
"""

import gzip
import io
import re
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from zlib import error as ZlibError  # noqa: N812 - it is a class

import msgspec

MOST_BYTES: Final = 256 << 20
"""Unpacked: a cluster of 50,000 pods takes an eighth of it."""
MOST_PACKED: Final = 64 << 20
MOST_FILES: Final = 256
MANIFEST: Final = "manifest.json"
OBJECTS: Final = "objects/"
_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,62}\.json|objects/[a-z0-9][a-z0-9.-]{0,252}\.jsonl")
_CHUNK: Final = 1 << 20


class UnusableFile(ValueError):  # noqa: N818 - what it says is what is wrong
    """A file that is no snapshot, or none that can be read here."""


def pack(files: Mapping[str, bytes]) -> bytes:
    """Return the file of these documents, by name; the same bytes for the same documents."""
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=6, mtime=0) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def unpack(path: Path) -> dict[str, bytes]:
    """Return the documents of a file, by name. Raises ``UnusableFile``."""
    try:
        with path.open("rb") as packed:
            content = _decompress(packed.read(MOST_PACKED + 1))
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as tar:
            return dict(_read_entries(tar))
    except (OSError, EOFError, ZlibError, tarfile.TarError, ValueError) as error:
        if isinstance(error, UnusableFile):
            raise
        raise UnusableFile(f"{path} is no snapshot: {error}") from error


def write_lines(documents: Iterable[Any]) -> bytes:
    return b"".join(b"%s\n" % msgspec.json.encode(document) for document in documents)


def read_lines(name: str, content: bytes) -> Iterator[Any]:
    """Yield the documents of a file with one in each line. Raises ``UnusableFile``."""
    for number, line in enumerate(content.splitlines(), start=1):
        yield read_document(f"{name}:{number}", line)


def read_document(name: str, content: bytes) -> Any:
    """Return a document. Raises ``UnusableFile``."""
    try:
        return msgspec.json.decode(content)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise UnusableFile(f"{name} is no JSON: {error}") from error


def _decompress(packed: bytes) -> bytes:
    if len(packed) > MOST_PACKED:
        raise UnusableFile(f"it is larger than {MOST_PACKED >> 20} MiB")
    content = io.BytesIO()
    with gzip.GzipFile(fileobj=io.BytesIO(packed)) as stream:
        while chunk := stream.read(_CHUNK):
            content.write(chunk)
            if content.tell() > MOST_BYTES:
                raise UnusableFile(f"it unpacks to more than {MOST_BYTES >> 20} MiB")
    return content.getvalue()


def _read_entries(tar: tarfile.TarFile) -> Iterator[tuple[str, bytes]]:
    names: set[str] = set()
    for entry in tar:
        if not entry.isreg() or not _NAME.fullmatch(entry.name) or entry.name in names:
            raise UnusableFile(f"{entry.name[:80]!r} is no file of a snapshot")
        if len(names) == MOST_FILES:
            raise UnusableFile(f"it has more than {MOST_FILES} files")
        names.add(entry.name)
        stream = tar.extractfile(entry)
        yield entry.name, b"" if stream is None else stream.read()
    if MANIFEST not in names:
        raise UnusableFile(f"it has no {MANIFEST}")
