"""What containers say of themselves: both layouts, and tenants who write what they like."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.agent.region_file import LAYOUTS, OTHER, UUID, Process, RegionFile

from koord.agent import regions
from koord.agent.holders import GpuHolder, read_holders
from koord.agent.nvidia import Card
from koord.agent.region import (
    MOST_CARDS,
    ContainerRegion,
    RegionLayout,
    Unreadable,
    UnreadableRegion,
    parse_region,
)
from koord.agent.regions import RegionReader

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

POD = "0a0a0a0a-1111-2222-3333-444444444444"
MEMORY = 8 << 30
HOLDER = GpuHolder("team-a", "train", POD, frozenset({0}))
CARD = Card(0, 0, UUID, "NVIDIA A100", MEMORY, None)


def reader_of(root: Path, holders: Mapping[str, GpuHolder] | None = None) -> RegionReader:
    found = {POD: HOLDER} if holders is None else holders
    return RegionReader(root, lambda: found, lambda: (CARD,))


def write(root: Path, content: bytes, folder: str = f"{POD}_main", name: str = "x.cache") -> Path:
    (root / folder).mkdir(exist_ok=True)
    file = root / folder / name
    file.write_bytes(content)
    return file


def parse(layout: RegionLayout, content: bytes) -> ContainerRegion:
    return parse_region(layout, lambda start, length: content[start : start + length])


@pytest.mark.parametrize("layout", LAYOUTS, ids=["v0", "v1"])
def test_processes_that_run_are_summed_and_those_that_ended_are_not(
    layout: RegionLayout, tmp_path: Path
) -> None:
    processes = [Process([100], [30]), Process([1 << 32], [90], status=0), Process([23], [11])]
    made = RegionFile(layout, limits=[1000], processes=processes, last_kernel=77)
    write(tmp_path, made.make())
    reader = reader_of(tmp_path)
    reading = reader.read()
    (card,) = reading.cards
    assert (card.holder, card.container, card.uuid) == (HOLDER, "main", UUID)
    assert (card.used, card.limit, card.load) == (123, 1000, 41)
    assert [kernel.last_kernel for kernel in reading.kernels] == [77] * (layout.major == 1)
    assert not reader.problems


def test_slots_behind_the_last_process_do_not_count(tmp_path: Path) -> None:
    made = RegionFile(processes=[Process([1]), Process([2]), Process([4])], count=2)
    write(tmp_path, made.make())
    assert [card.used for card in reader_of(tmp_path).read().cards] == [3]


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (RegionFile(magic=1), Unreadable.UNKNOWN_MAGIC),
        (RegionFile(major=2), Unreadable.UNKNOWN_MAGIC),
        (RegionFile(cards=MOST_CARDS + 1), Unreadable.UNKNOWN_MAGIC),
        (RegionFile(uuids=["MIG-x"]), Unreadable.UNKNOWN_CARD),
        (RegionFile(uuids=[OTHER]), Unreadable.UNKNOWN_CARD),
        (RegionFile(uuids=[f"{UUID}0"]), Unreadable.UNKNOWN_CARD),
    ],
)
def test_what_is_no_region_of_the_pod_is_counted(
    made: RegionFile, why: Unreadable, tmp_path: Path
) -> None:
    write(tmp_path, made.make())
    reader = reader_of(tmp_path)
    assert reader.read().cards == ()
    assert reader.problems == {why: 1}


def test_no_number_is_above_what_the_card_has(tmp_path: Path) -> None:
    huge = (1 << 64) - 1
    processes = [Process([huge], [huge])] * 3
    write(tmp_path, RegionFile(limits=[huge], processes=processes, count=2**31 - 1).make())
    reader = reader_of(tmp_path)
    (card,) = reader.read().cards
    assert (card.used, card.limit, card.load) == (MEMORY, MEMORY, 100)
    assert reader.problems == {Unreadable.ABOVE_MEMORY: 1}


def test_a_card_that_is_named_twice_has_one_sample(tmp_path: Path) -> None:
    write(tmp_path, RegionFile(uuids=[UUID, UUID], limits=[1, 2]).make())
    reader = reader_of(tmp_path)
    assert [card.limit for card in reader.read().cards] == [1]
    assert reader.problems == {Unreadable.UNKNOWN_CARD: 1}


def _link(file: Path) -> None:
    file.rename(file.with_name("target"))
    file.symlink_to("target")


def _pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def _folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def _second(file: Path) -> None:
    file.with_name("y.cache").write_bytes(b"")


def _linked_folder(file: Path) -> None:
    file.parent.rename(file.parent.with_name("elsewhere"))
    file.parent.symlink_to("elsewhere")


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (_link, Unreadable.NOT_REGULAR),
        (_pipe, Unreadable.NOT_REGULAR),
        (_folder, Unreadable.NOT_REGULAR),
        (_second, Unreadable.NO_FILE),
        (_linked_folder, Unreadable.NO_FILE),
        (lambda file: os.truncate(file, 100), Unreadable.UNKNOWN_SIZE),
        (lambda file: file.unlink(), Unreadable.NO_FILE),
    ],
)
def test_only_a_plain_file_of_a_known_size_is_read(harm: Any, why: Unreadable, tmp_path) -> None:
    harm(write(tmp_path, RegionFile().make()))
    reader = reader_of(tmp_path)
    assert reader.read().cards == ()
    assert reader.problems == {why: 1}


def test_a_file_that_is_truncated_while_it_is_read_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path, RegionFile(processes=[Process([1])]).make())
    pread = os.pread

    def truncate_first(*arguments: Any) -> bytes:
        os.truncate(file, 4096)
        return pread(*arguments)

    monkeypatch.setattr(os, "pread", truncate_first)
    reader = reader_of(tmp_path)
    assert reader.read().cards == ()
    assert reader.problems == {Unreadable.TRUNCATED: 1}


def test_folders_of_pods_without_gpus_are_left_alone(tmp_path: Path) -> None:
    write(tmp_path, RegionFile().make(), f"{'f' * 36}_main")
    write(tmp_path, RegionFile().make(), "lost+found")
    (tmp_path / "file").write_text("x")
    reader = reader_of(tmp_path)
    assert reader.read().cards == ()
    assert not reader.problems
    assert reader_of(tmp_path / "none").read().cards == ()


def test_of_many_containers_others_have_the_next_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regions, "MOST_FOLDERS", 2)
    for name in "abc":
        write(tmp_path, RegionFile().make(), f"{POD}_{name}")
    reader = reader_of(tmp_path)
    turns = [[card.container for card in reader.read().cards] for _ in range(3)]
    assert turns == [["a", "b"], ["c", "a"], ["b", "c"]]
    assert reader.problems == {Unreadable.TOO_MANY: 3}


@st.composite
def scribbled(draw: st.DrawFn) -> tuple[RegionLayout, bytes]:
    """Return a file in which a tenant has written, here and there."""
    layout = draw(st.sampled_from(LAYOUTS))
    at = st.one_of(
        st.integers(0, layout.slots + 2 * layout.slot),
        st.integers(layout.processes - 8, layout.size - 8),
    )
    more = draw(st.dictionaries(at, st.binary(min_size=1, max_size=8), max_size=6))
    processes = [Process([5], [7])] * draw(st.integers(0, 2))
    count = draw(st.none() | st.integers(-(2**31), 40))
    return layout, RegionFile(layout, processes=processes, count=count, more=more).make()


@given(scribbled(), st.integers(0, 3_000_000))
def test_no_bytes_end_the_reader_or_yield_what_cannot_be(
    file: tuple[RegionLayout, bytes], end: int
) -> None:
    layout, content = file

    def read(start: int, length: int) -> bytes:
        part = content[start:end][:length]
        if len(part) != length:
            raise UnreadableRegion(Unreadable.TRUNCATED)
        return part

    try:
        region = parse_region(layout, read)
    except UnreadableRegion:
        return
    assert len(region.cards) <= MOST_CARDS
    assert all(claim.used >= 0 and claim.load >= 0 for claim in region.cards)
    reader = RegionReader(None, dict, tuple)  # type: ignore[arg-type]
    folder = regions._Folder("x", HOLDER, "main")
    for card in reader._check(folder, region, {UUID: CARD}):
        assert card.uuid == UUID
        assert 0 <= card.used <= MEMORY
        assert 0 <= card.limit <= MEMORY
        assert 0 <= card.load <= 100


def test_holders_are_those_of_gpus_in_the_status_of_the_device() -> None:
    entries = [{"name": "train", "namespace": "team-a", "uuid": POD, "minors": [0]}]
    status = {
        "allocations": [
            {"type": "gpu", "entries": [*entries, {"name": "no-uid", "minors": [1]}]},
            {"type": "rdma", "entries": [{"uuid": "x", "minors": [3]}]},
        ]
    }
    assert read_holders({"status": status}) == {POD: HOLDER}
    assert read_holders({}) == {}
