"""What can go wrong with a store, each with a way out.

StoreError
├── StoreUnusableError   no file that this version can use
├── StoreInUseError      another process writes it
└── StoreBusyError       too much waits to be written
"""


class StoreError(Exception):
    """A store cannot be used; the text says why, and what to do."""


class StoreUnusableError(StoreError):
    """The file cannot be opened, is no store, or is of a later version."""


class StoreInUseError(StoreError):
    """Another process writes to the file, or has taken it over."""


class StoreBusyError(StoreError):
    """More waits to be written than is kept in memory: the disk is full, or too slow."""
