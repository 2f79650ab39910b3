"""What ``koord serve`` costs a large cluster and its readers, against the bars that it has.

    python -m benchmarks.serve [--nodes 5000] [--pods 50000] [--units 10000] [--seconds 60]
    python -m benchmarks.serve --only answers --holds

The process is the real one, with its store, its TokenReviews and a token for each of 34 users. The
API server is a stand-in (``benchmarks.api_stand_in``) in a process of its own, and so are those who
ask: this one. Processor time is that of ``koord serve`` alone. Times of answers and of changes hold
for this machine as it is loaded now, so the load is printed, too. ``--holds`` names what kept
questions waiting for longest (``benchmarks.serve_holds``).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import aiohttp

from benchmarks.see import Bar
from koord.see.app import BASE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

USERS: Final = 34
STREAMS: Final = 100
FEW_STREAMS: Final = 20
PER_SECOND: Final = 50
SETTLE_SECONDS: Final = 10.0
"""After streams were opened or changes began, before anything is measured."""
PATHS: Final = (
    "overview",
    "queue",
    "queue?sort=-since",
    "queue?namespace={team}",
    "quotas",
    "health",
    "reservations",
    "fragmentation",
)
"""Answers that are looked up: pages of a hundred rows."""
_CONFIG: Final = """\
apiVersion: operators.koordinator.sh/v1alpha1
kind: OperatorConfiguration
logFormat: json
see: {{address: "127.0.0.1:0", store: "sqlite:{store}"}}
"""
_KUBECONFIG: Final = """\
apiVersion: v1
kind: Config
current-context: stand-in
clusters: [{{name: stand-in, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: serve, user: {{token: koord-serve}}}}]
contexts: [{{name: stand-in, context: {{cluster: stand-in, user: serve}}}}]
"""
_MOST_LINE: Final = 1 << 24
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PROBE: Final = re.compile(r'"[^"]*/probe-(\d+)"')


@dataclass(slots=True)
class Served:
    """A running ``koord serve``: where it listens, and what it takes."""

    pid: int
    address: str
    holds: Path | None = None
    """Where it writes what kept questions waiting, if it does."""

    @property
    def busy(self) -> float:
        """Seconds of processor time until now."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    @property
    def mebibytes(self) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]

    def signal(self, number: int) -> None:
        """Begin or end to note what keeps questions waiting, where that is wanted."""
        if self.holds is not None:
            os.kill(self.pid, number)

    def print_holds(self) -> None:
        if self.holds is None or not self.holds.exists():
            return
        print("| ms at most | p95 | times | in all | what |\n|---|---|---|---|---|")
        for row in json.loads(self.holds.read_text()):
            took = [f"{row[name]:.1f}" for name in ("longest", "p95")]
            cells = (*took, str(row["count"]), f"{row['sum']:.0f}", row["name"])
            print(f"| {' | '.join(cells)} |")


@dataclass(slots=True)
class Readers:
    """Everybody who asks, in this process."""

    session: aiohttp.ClientSession
    served: Served
    stand_in: str
    lags: list[float] = field(default_factory=list)
    """Seconds from an event of the watch to a stream that tells it."""
    streams: list[asyncio.Task[None]] = field(default_factory=list)

    async def ask(self, user: int, path: str) -> tuple[int, float]:
        began = time.perf_counter()
        async with self.session.get(_url(self.served, path), headers=_sign(user)) as response:
            await response.read()
        return response.status, time.perf_counter() - began

    async def wait_until_ready(self) -> None:
        while (await self.ask(0, "overview"))[0] != 200:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.2)

    async def change(self, per_second: float) -> None:
        """Let so many pods change per second; 0 for none at all."""
        wanted = {"changes": per_second, "probes": per_second > 0}
        async with self.session.post(f"{self.stand_in}/stand-in", json=wanted) as response:
            response.raise_for_status()

    async def open_streams(self, many: int) -> None:
        """Let so many streams be open, three of a user at most."""
        for stream in self.streams[many:]:
            stream.cancel()
        del self.streams[many:]
        for at in range(len(self.streams), many):
            self.streams.append(asyncio.create_task(self._follow(at % USERS)))
            if at < USERS:
                await asyncio.sleep(0.3)  # few unknown tokens are looked at per second

    async def _follow(self, user: int) -> None:
        topics = f"topic=overview&topic=queue(namespace={_team_of(user)})"
        url = _url(self.served, f"stream?{topics}")
        while True:
            async with self.session.get(url, headers=_sign(user)) as response:
                if response.status == 200:
                    await self._read(response)
            await asyncio.sleep(1)

    async def _read(self, response: aiohttp.ClientResponse) -> None:
        seen: set[str] = set()
        while line := await response.content.readline():
            if not line.startswith(b"data:"):
                continue
            now = time.time()
            news = set(_PROBE.findall(line.decode())) - seen
            seen |= news
            self.lags.extend(now - int(name) / 1000 for name in news)

    async def ask_often(self, seconds: float) -> list[float]:
        """Ask fifty times per second, whatever the answers take; return how long they took."""
        chance = random.Random(1)  # noqa: S311 - repeatable
        loop = asyncio.get_running_loop()
        began, asked = loop.time(), []
        for at in range(int(seconds * PER_SECOND)):
            await asyncio.sleep(max(0.0, began + at / PER_SECOND - loop.time()))
            user = chance.randrange(USERS)
            path = chance.choice(PATHS).format(team=_team_of(user))
            asked.append(asyncio.create_task(self.ask(user, path)))
        answers = await asyncio.gather(*asked)
        refused = [status for status, _ in answers if status != 200]
        if refused:
            print(f"refused: {len(refused)} of {len(answers)}, such as {refused[0]}")
        return [1000 * took for status, took in answers if status == 200]


def _team_of(user: int) -> str:
    return f"team-{user:02}"


def _sign(user: int) -> dict[str, str]:
    return {"Authorization": f"Bearer user-{user}"}


def _url(served: Served, path: str) -> str:
    return f"{served.address}{BASE}/{path}"


def _find_quantile(values: Sequence[float], share: float) -> float:
    return (
        sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else float("nan")
    )


async def measure(readers: Readers, seconds: float, only: str) -> AsyncIterator[Bar]:
    served = readers.served
    began = time.monotonic()
    await readers.wait_until_ready()
    yield Bar("first answer, after its start", time.monotonic() - began, "s")
    yield Bar("the same, processor time", served.busy, "s")
    for name, part in _PARTS.items():
        if only in {"", name}:
            async for bar in part(readers, seconds):
                yield bar


async def measure_idle(readers: Readers, seconds: float) -> AsyncIterator[Bar]:
    served = readers.served
    await asyncio.sleep(75)  # a first look at what is held, and nobody asks any more
    busy, began = served.busy, time.monotonic()
    await asyncio.sleep(seconds)
    yield Bar("idle: processor", _share(served, busy, began), "%", 3)
    yield Bar("idle, with store: memory", served.mebibytes, "MiB", 320)


async def measure_answers(readers: Readers, seconds: float) -> AsyncIterator[Bar]:
    served = readers.served
    await readers.change(10)
    await readers.open_streams(STREAMS)
    await asyncio.sleep(SETTLE_SECONDS)
    readers.lags.clear()
    served.signal(signal.SIGUSR1)
    busy, began = served.busy, time.monotonic()
    times = await readers.ask_often(seconds)
    what = f"{PER_SECOND} answers/s, {STREAMS} streams, 10 changes/s"
    for name, share, most in (("p50", 0.5, 10), ("p95", 0.95, 50), ("p99", 0.99, 150)):
        yield Bar(f"{what}: {name}", _find_quantile(times, share), "ms", most)
    yield Bar(f"{what}: processor", _share(served, busy, began), "%")
    yield Bar(f"{what}: from event to stream, p95", _find_quantile(readers.lags, 0.95), "s", 1.5)
    yield Bar(f"{STREAMS} streams: memory", served.mebibytes, "MiB", 400)
    served.signal(signal.SIGUSR2)


async def measure_changes(readers: Readers, seconds: float) -> AsyncIterator[Bar]:
    served = readers.served
    await readers.open_streams(FEW_STREAMS)
    await readers.change(100)
    await asyncio.sleep(SETTLE_SECONDS)
    readers.lags.clear()
    busy, began = served.busy, time.monotonic()
    await asyncio.sleep(seconds)
    what = f"100 changes/s, {FEW_STREAMS} streams"
    yield Bar(f"{what}: processor", _share(served, busy, began), "%", 60)
    yield Bar(f"{what}: from event to stream, p50", _find_quantile(readers.lags, 0.5), "s")
    yield Bar(f"{what}: from event to stream, p95", _find_quantile(readers.lags, 0.95), "s", 1.5)
    yield Bar(f"{what}: memory", served.mebibytes, "MiB", 400)


_PARTS: Final = {"idle": measure_idle, "answers": measure_answers, "changes": measure_changes}


def _share(served: Served, busy: float, began: float) -> float:
    """Return the share of one processor since then, in percent."""
    return 100 * (served.busy - busy) / (time.monotonic() - began)


@contextmanager
def run_stand_in(options: argparse.Namespace) -> Iterator[int]:
    """Run a stand-in for the API server; yields its port."""
    sizes = [f"--{name}={getattr(options, name)}" for name in ("nodes", "pods", "units")]
    command = [sys.executable, "-m", "benchmarks.api_stand_in", *sizes]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.terminate()


@contextmanager
def run_serve(port: int, directory: Path, *, holds: bool) -> Iterator[Served]:
    """Run ``koord serve``, which follows the stand-in."""
    config, kubeconfig, log = (directory / name for name in ("config.yaml", "kubeconfig", "log"))
    config.write_text(_CONFIG.format(store=directory / "see.db"))
    kubeconfig.write_text(_KUBECONFIG.format(port=port))
    noted = directory / "holds.json" if holds else None
    koord = [sys.executable, "-m", "benchmarks.serve_holds", noted] if holds else []
    koord = koord or [Path(sys.executable).with_name("koord")]
    command = [*koord, "serve", "--kubeconfig", kubeconfig, "--config", config]
    with (
        log.open("w") as written,
        subprocess.Popen(command, stdout=written, stderr=written) as process,
    ):
        try:
            while not (line := re.search(r'.*"Serving answers".*', log.read_text())):
                assert process.poll() is None, log.read_text()
                time.sleep(0.05)
            address = f"http://127.0.0.1:{json.loads(line[0])['port']}"
            yield Served(process.pid, address, noted)
        finally:
            process.send_signal(signal.SIGTERM)


async def print_bars(options: argparse.Namespace, served: Served, port: int) -> None:
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(
        connector=connector, timeout=timeout, read_bufsize=_MOST_LINE
    ) as session:
        readers = Readers(session, served, f"http://127.0.0.1:{port}")
        print("| What | measured | bar |\n|---|---|---|")
        async for bar in measure(readers, options.seconds, options.only):
            print(bar.line, flush=True)
        await readers.open_streams(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--units", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--only", choices=sorted(_PARTS), default="", help="this part alone")
    parser.add_argument("--holds", action="store_true", help="name what kept questions waiting")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as directory,
        run_stand_in(options) as port,
        run_serve(port, Path(directory), holds=options.holds) as served,
    ):
        asyncio.run(print_bars(options, served, port))
        served.print_holds()
        print("load of this machine at the end:", *os.getloadavg())


if __name__ == "__main__":
    main()
