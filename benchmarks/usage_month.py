"""What the report of a month costs that a store has seen.

    python -m benchmarks.usage_month [--jobs 125000] [--pods 8] [--quotas 40] [--runs 5]

Writes segments of generated jobs into a store, as whoever follows pods does, and reports on the
month: once with the sums that are kept for that, and from the segments, which has to say the same.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from koord.answers.usage_report import make_report
from koord.core.usage.book import UsageBook
from koord.core.usage.cluster_time import GpuState
from koord.core.usage.levels import UsageLevels, integrate_levels
from koord.core.usage.periods import find_period
from koord.core.usage.quota_time import QuotaLevel
from koord.core.usage.segments import EndBasis, Holder, Segment
from koord.core.usage.tables import format_hours
from koord.store import usage_sums
from koord.store.keeper import RecordStore
from koord.store.retention import Keep
from koord.store.usage_reading import UsageReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from koord.store.writing import StoreWriter

MONTH: Final = find_period("2026-10").window
HOUR: Final = 3_600_000
AT_ONCE: Final = 8_000
GPUS_OF_A_POD: Final = (1_000, 2_000, 4_000, 8_000)
MODELS: Final = ("H100", "A100")


def make_segments(jobs: int, pods: int, quotas: int) -> Iterator[Segment]:
    """Yield the segments of jobs that begin in the month, each of a few hours."""
    dice = random.Random(1)  # noqa: S311 - the same load in every run
    for job in range(jobs):
        team = dice.randrange(quotas)
        start = dice.randrange(MONTH.start, MONTH.end - 12 * HOUR)
        end = start + int(dice.expovariate(1 / (3 * HOUR))) % (12 * HOUR) + 1
        gpus, model = dice.choice(GPUS_OF_A_POD), dice.choice(MODELS)
        namespace, is_victim = f"team-{team}-{dice.randrange(3)}", dice.random() < 0.05
        for pod in range(pods):
            yield Segment(
                f"{job}-{pod}",
                Holder(
                    namespace,
                    f"train-{job}-{pod}",
                    quota=f"team-{team}",
                    user=f"user-{team}-{dice.randrange(5)}",
                    owner=f"{namespace}/train-{job}",
                    node=f"n{dice.randrange(5_000)}",
                    model=model,
                    band="koord-prod",
                ),
                start,
                end,
                gpus,
                EndBasis.STATUS,
                (("cpu", 16_000), ("memory", 64 << 30)),
                cause="Preempted" if is_victim else "",
                by="team-0/high" if is_victim else "",
            )


def fill(store: RecordStore, arguments: argparse.Namespace) -> int:
    """Write all of it; return how many segments that were."""
    batch: list[Segment] = []
    count = 0

    def write(segments: tuple[Segment, ...]) -> None:
        def put(writer: StoreWriter) -> None:
            usage_sums.prepare(writer.connection)
            usage_sums.put_segments(writer, segments)

        store.submit(put).result()

    for segment in make_segments(arguments.jobs, arguments.pods, arguments.quotas):
        batch.append(segment)
        count += 1
        if len(batch) >= AT_ONCE:
            write(tuple(batch))
            batch.clear()
    write(tuple(batch))
    store.submit(lambda writer: add_levels(writer, arguments.quotas)).result()
    return count


def add_levels(writer: StoreWriter, quotas: int) -> None:
    """Write what quotas were guaranteed in each hour of the month."""
    level = QuotaLevel(0, 64_000, 128_000, 96_000, 16_000)
    for now in range(MONTH.start, MONTH.end, HOUR):
        of_quotas = {f"team-{team}": level for team in range(quotas)}
        levels = UsageLevels(now, of_quotas, {"H100": {GpuState.USED: 64_000}})
        usage_sums.add_levels(writer, integrate_levels(levels, now + HOUR))
    usage_sums.note_watch(writer, MONTH.start)
    usage_sums.note_watch(writer, MONTH.end)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=125_000)
    parser.add_argument("--pods", type=int, default=8)
    parser.add_argument("--quotas", type=int, default=40)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "usage.db"
        keep = Keep(ms=10 * 365 * 24 * HOUR)
        with RecordStore(path, "benchmark", keep, batch_seconds=0.0) as store:
            began = time.perf_counter()
            count = fill(store, arguments)
            took = time.perf_counter() - began
        size = path.stat().st_size / (1 << 20)
        print(f"{count} segments written in {took:.1f} s, {count / took:.0f}/s; {size:.0f} MiB")
        reader, times = UsageReader(path), list[float]()
        for _ in range(arguments.runs):
            began = time.perf_counter()
            report = make_report(reader.read(MONTH))
            times.append(time.perf_counter() - began)
        print(f"report of the month: {statistics.median(times):.2f} s, {max(times):.2f} s at most")
        exact = UsageBook(MONTH)
        exact.add_segments(make_segments(arguments.jobs, arguments.pods, arguments.quotas))
        by_segments = make_report(exact)
        assert report.held == by_segments.held, "sums and segments differ"
        assert report.owners == by_segments.owners, "jobs differ"
        assert report.losses == by_segments.losses, "losses differ"
        print(f"{format_hours(report.held)} GPU hours, the same from the segments")


if __name__ == "__main__":
    main()
