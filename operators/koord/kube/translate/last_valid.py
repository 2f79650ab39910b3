"""What a status keeps of settings that were valid last, for any kind.

Knows the name of the field, no kind; what is kept has the form that its kind gives it.
"""

from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class _Status(msgspec.Struct, Generic[T], rename="camel"):
    last_valid_spec: T | None = None


def read_kept(status: bytes, of: type[T]) -> T | None:
    """Return what a status keeps; None if it keeps nothing that can be read.

    Nonsense that somebody else has written is as good as nothing: the status is written anew.
    """
    try:
        found = msgspec.json.decode(status, type=_Status[of] | None) if status else None  # type: ignore[valid-type]
    except msgspec.DecodeError:
        return None
    return found.last_valid_spec if found is not None else None
