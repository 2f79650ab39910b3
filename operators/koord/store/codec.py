"""Bodies of rows, deflated with the dictionary of their store.

One row is small, and its text is nearly all names of fields: with a dictionary it takes a third.
"""

import zlib
from dataclasses import dataclass
from typing import Final

MOST_BYTES: Final = 64 * 1024
"""Of a body once it is inflated; there are none as large."""
_LEVEL: Final = 6
_RAW: Final = -14
"""Neither header nor checksum, and a window of 16 KiB: longer than dictionary and body."""
_MEMORY: Final = 6


@dataclass(frozen=True, slots=True)
class Codec:
    """Deflates and inflates; the dictionary is that of the file."""

    dictionary: bytes

    def deflate(self, body: bytes) -> bytes:
        deflater = zlib.compressobj(
            _LEVEL, zlib.DEFLATED, _RAW, _MEMORY, zlib.Z_DEFAULT_STRATEGY, self.dictionary
        )
        return deflater.compress(body) + deflater.flush()

    def inflate(self, body: bytes) -> bytes:
        """Return what was deflated; raise ``ValueError`` if the bytes are damaged."""
        inflater = zlib.decompressobj(_RAW, self.dictionary)
        try:
            text = inflater.decompress(body, MOST_BYTES)
        except zlib.error as error:
            raise ValueError(f"a row is damaged: {error}") from error
        if not inflater.eof:
            raise ValueError("a row is damaged: it has no end")
        return text
