"""What containers say that they use of shared GPUs: the files of HAMi-core on this node.

Each container has a folder, ``POD-UID_CONTAINER``, in which it may do what it likes. So a reading
is bounded in files and in time, begins with another container each time, and reports a number only
for a card that the pod holds, and never more than that card has. Nothing is written or deleted.
"""

import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from koord.agent.holders import GpuHolder
from koord.agent.nvidia import Card
from koord.agent.region import (
    ContainerRegion,
    RegionCard,
    Unreadable,
    UnreadableRegion,
    read_region,
)

MOST_FOLDERS: Final = 512
"""Containers that are read at a time."""
_MOST_NAMES: Final = 16_384
"""Folders that are looked at: those of pods that are gone stay."""
_MOST_FILES: Final = 64
"""Entries of a container's folder that are looked at."""
_BUDGET_SECONDS: Final = 1.0
_FOLDER: Final = re.compile(r"([0-9a-f-]{36})_([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)")
_SUFFIX: Final = ".cache"
_FULL_LOAD: Final = 100


class ContainerCard(NamedTuple):
    """What a container says of one card: bytes and percent; ``limit`` 0 is none."""

    holder: GpuHolder
    container: str
    number: int
    uuid: str
    limit: int
    used: int
    load: int


class ContainerKernel(NamedTuple):
    """When a container last started work on a GPU, in seconds since the epoch."""

    holder: GpuHolder
    container: str
    last_kernel: int


class RegionReading(NamedTuple):
    """What all containers of the node say."""

    cards: tuple[ContainerCard, ...] = ()
    kernels: tuple[ContainerKernel, ...] = ()


class _Folder(NamedTuple):
    name: str
    holder: GpuHolder
    container: str


@dataclass(slots=True)
class RegionReader:
    """Reads the files below a folder; used by one caller at a time."""

    root: Path
    holders: Callable[[], Mapping[str, GpuHolder]]
    cards: Callable[[], tuple[Card, ...]]
    clock: Callable[[], float] = time.monotonic
    problems: Counter[Unreadable] = field(default_factory=Counter)
    """How often something did not count, and why."""
    _last: str = ""
    """The folder that was read last."""

    def read(self) -> RegionReading:
        by_minor = {card.minor: card for card in self.cards()}
        read_cards: list[ContainerCard] = []
        kernels: list[ContainerKernel] = []
        try:
            root = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return RegionReading()
        try:
            for folder in self._choose(self._list_folders(root)):
                try:
                    region = _read_folder(root, folder.name)
                except UnreadableRegion as error:
                    self.problems[error.why] += 1
                    continue
                held = [by_minor[minor] for minor in folder.holder.minors if minor in by_minor]
                read_cards += self._check(folder, region, {card.uuid: card for card in held})
                if region.last_kernel > 0:
                    kernel = region.last_kernel
                    kernels.append(ContainerKernel(folder.holder, folder.container, kernel))
        finally:
            os.close(root)
        return RegionReading(tuple(read_cards), tuple(kernels))

    def _list_folders(self, root: int) -> list[_Folder]:
        holders, folders = self.holders(), []
        with os.scandir(root) as entries:
            for entry in islice(entries, _MOST_NAMES):
                named = _FOLDER.fullmatch(entry.name)
                holder = holders.get(named[1]) if named is not None else None
                # Folders of pods that are gone stay, so that they are no problem.
                if named is not None and holder is not None:
                    folders.append(_Folder(entry.name, holder, named[2]))
        return sorted(folders)

    def _choose(self, folders: list[_Folder]) -> Iterator[_Folder]:
        """Yield those that fit into one reading, from the one after the last on."""
        end = self.clock() + _BUDGET_SECONDS
        later = [folder for folder in folders if folder.name > self._last]
        turns = later + folders[: len(folders) - len(later)]
        for count, folder in enumerate(turns):
            if count >= MOST_FOLDERS or self.clock() >= end:
                self.problems[Unreadable.TOO_MANY] += len(turns) - count
                return
            yield folder
            self._last = folder.name

    def _check(
        self, folder: _Folder, region: ContainerRegion, held: dict[str, Card]
    ) -> Iterator[ContainerCard]:
        for claim in region.cards:
            card = held.pop(claim.uuid, None)
            if card is None:
                self.problems[Unreadable.UNKNOWN_CARD] += 1
                continue
            if max(claim.used, claim.limit) > card.memory:
                self.problems[Unreadable.ABOVE_MEMORY] += 1
            yield _make_card(folder, claim, card.memory)


def _make_card(folder: _Folder, claim: RegionCard, memory: int) -> ContainerCard:
    return ContainerCard(
        folder.holder,
        folder.container,
        claim.number,
        claim.uuid,
        min(claim.limit, memory),
        min(claim.used, memory),
        min(claim.load, _FULL_LOAD),
    )


def _read_folder(root: int, name: str) -> ContainerRegion:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        folder = os.open(name, flags, dir_fd=root)
    except OSError as error:
        raise UnreadableRegion(Unreadable.NO_FILE) from error
    try:
        return read_region(folder, _find_file(folder))
    finally:
        os.close(folder)


def _find_file(folder: int) -> str:
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in islice(entries, _MOST_FILES)]
    except OSError as error:
        raise UnreadableRegion(Unreadable.NO_FILE) from error
    files = [name for name in names if name.endswith(_SUFFIX)]
    if len(files) != 1:
        raise UnreadableRegion(Unreadable.NO_FILE)
    return files[0]
