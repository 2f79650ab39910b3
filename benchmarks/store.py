"""What the store of decision records costs, against the bars that it has.

    python -m benchmarks.store [--records 1000000] [--days 30]

Records of gangs of eight pods that wait twice, start, run and end, as the leader writes them, over
so many days. On the disk of the folder in which it runs, by one process.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import TYPE_CHECKING, Final

import msgspec

from benchmarks.see import Bar
from koord.answers.audit import to_text
from koord.answers.audit_analysis import AuditScope
from koord.answers.encoding import encode
from koord.core.usage.segments import Window
from koord.store.analysis import analyse_store
from koord.store.days import DAY_MS
from koord.store.keeper import RecordStore
from koord.store.reading import StoreReader
from koord.store.retention import Keep

if TYPE_CHECKING:
    from collections.abc import Iterator

GPU: Final = "nvidia.com/gpu"
NOW: Final = 1_795_700_000_000
PAGE: Final = 2000
PODS: Final = 8
KINDS: Final = (
    ("Seen", 0),
    ("Complete", 1_000),
    ("Attempt", 2_000),
    ("Attempt", 600_000),
    ("Placed", 1_200_000),
    ("Committed", 1_201_000),
    ("Running", 1_230_000),
    ("Ended", 4_800_000),
)
"""Records of a unit, and when, in milliseconds after it was created."""


def make_lines(records: int, days: int) -> Iterator[bytes]:
    """Yield records in the order of their time."""
    units = records // len(KINDS)
    begin = NOW - days * DAY_MS + KINDS[-1][1]
    step = (days * DAY_MS - 2 * KINDS[-1][1]) / max(1, units)
    events = sorted(
        (int(begin + number * step) + later, number, kind)
        for number in range(units)
        for kind, later in KINDS
    )
    for seq, (at, number, kind) in enumerate(events, 1):
        yield msgspec.json.encode(make_record(seq, at, number, kind))


def make_record(seq: int, at: int, number: int, kind: str) -> dict[str, object]:
    team, name = f"team-{number % 40:02}", f"train-{number:07}"
    unit = {
        "key": f"{team}/{name}",
        "namespace": team,
        "names": [f"{team}/{name}"],
        "owner": {"kind": "Job", "name": name, "uid": f"{number:032x}"},
        "uids": [f"{number:028x}{pod:04x}" for pod in range(3)],
        "pods": PODS,
        "required": PODS,
        "quota": team,
        "priority": 9000,
        "asks": {"cpu": "64", "memory": "512Gi", GPU: str(PODS), "pods": str(PODS)},
        "milliGpus": 1000 * PODS,
    }
    record: dict[str, object] = {
        "term": 1,
        "seq": seq,
        "at": to_text(at),
        "mono": at - NOW + 100 * DAY_MS,
        "kind": kind,
        "unit": unit,
        "trace": f"{number:032x}",
    }
    time_text = to_text(at)
    if kind in {"Seen", "Complete"}:
        record |= {"since": time_text}
    elif kind == "Attempt":
        causes = [{"cause": f"Insufficient {GPU}", "nodes": 4890, "examples": None}]
        record |= {
            "attempt": 1,
            "position": number % 1000 + 1,
            "of": 1000,
            "cycle": seq,
            "cycleMicros": 14200,
            "class": "Room",
            "code": "InsufficientNodes",
            "fields": {"want": 8, "fit": number % 8, "nodes": 5000, "resource": GPU, "request": 1},
            "nodes": {"total": 5000, "fit": number % 8, "causes": causes},
            "text": f"Room for {number % 8} of 8 pods. 4890 nodes lack 1 free {GPU}.",
            "repeats": 0,
            "firstAt": time_text,
            "lastAt": time_text,
        }
    elif kind == "Placed":
        node = f"gpu-{number % 5000:05}"
        names = [f"{name}-worker-{pod}" for pod in range(PODS)]
        record |= {
            "planId": f"{number:016x}",
            "domain": ["spine-1", f"block-{number % 16}"],
            "created": to_text(at - 1_200_000),
            "complete": to_text(at - 1_199_000),
            "due": time_text,
            "ahead": 3,
            "cycle": seq,
            "position": number % 1000 + 1,
            "quotas": [team],
            "nodes": [{"node": node, "pods": PODS, "names": names}],
            "moreNodes": 0,
            "score": [],
        }
    elif kind == "Committed":
        record |= {"planId": f"{number:016x}", "releases": PODS, "binds": PODS, "leftToOthers": 0}
        record |= {"notBound": 0, "tookMs": 900, "failures": [], "moreFailures": 0}
    return record | {"closed": None}


def measure(path: Path, records: int, days: int) -> Iterator[Bar]:
    took, busy, size, pages = 0.0, 0.0, 0, list[bytes]()
    with RecordStore(path, "benchmark", Keep(400 * DAY_MS), lambda: NOW / 1000) as store:
        for line in make_lines(records, days):
            pages.append(line)
            size += len(line)
            if len(pages) == PAGE:
                times = _append(store, pages)
                took, busy, pages = took + times[0], busy + times[1], []
        times = _append(store, pages)
        took, busy = took + times[0], busy + times[1]
    yield Bar("records", records, "")
    yield Bar("time of one insert", 1e6 * took / records, "µs", 200.0)
    yield Bar("time of one insert, processor time", 1e6 * busy / records, "µs")
    yield Bar("a record as JSON", size / records, "bytes")
    yield Bar("a record in the file, with indices", path.stat().st_size / records, "bytes")
    reader = StoreReader(path)
    stories = []
    for number in range(0, records // len(KINDS), max(1, records // len(KINDS) // 50)):
        began = time.perf_counter()
        story = reader.story(f"team-{number % 40:02}", f"train-{number:07}-worker-3")
        stories.append(1000 * (time.perf_counter() - began))
        assert len(story.rows) == len(KINDS), number
    yield Bar("story of one unit, by a pod, longest of 50", max(stories), "ms", 50.0)
    for hours, most in ((24, 2.0), (24 * days, None)):
        window = Window(NOW - hours * 3_600_000, NOW)
        began, busy = time.perf_counter(), time.process_time()
        analysis = analyse_store(path, window, AuditScope())
        encode(analysis.report)
        wall, busy = time.perf_counter() - began, time.process_time() - busy
        count = analysis.report.coverage.records
        yield Bar(f"analysis of {hours} h: records", count, "")
        yield Bar(f"analysis of {hours} h", wall, "s", most)
        yield Bar(f"analysis of {hours} h, processor time", busy, "s")
    yield Bar("memory of all of it, at most", getrusage(RUSAGE_SELF).ru_maxrss / 1024, "MiB")


def _append(store: RecordStore, lines: list[bytes]) -> tuple[float, float]:
    """Return the time until they are on the disk, and the processor time."""
    began, busy = time.perf_counter(), time.process_time()
    future = store.append(1, "leader", lines)
    store.flush()
    future.result()
    return time.perf_counter() - began, time.process_time() - busy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--days", type=int, default=30)
    options = parser.parse_args()
    print("| What | measured | bar |\n|---|---|---|")
    with tempfile.TemporaryDirectory(dir=".") as folder:
        for bar in measure(Path(folder) / "see.db", options.records, options.days):
            print(bar.line, flush=True)


if __name__ == "__main__":
    main()
