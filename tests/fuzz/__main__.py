"""Fuzzes decoders and translators: ``python -m tests.fuzz --inputs 1000000 [--seed 0]``."""

import argparse
import resource
import sys
import time

from tests.fuzz.harness import ROUND, Fuzzer


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    fuzzer, began, slowest = Fuzzer(options.seed), time.perf_counter(), 0.0
    done = first = 0
    while done < options.inputs:
        started = time.perf_counter()
        try:
            fuzzer.run(ROUND)
        except BaseException:
            sys.stdout.write(f"after {done} inputs, the last one was {fuzzer.last[:2000]!r}\n")
            raise
        done += ROUND
        slowest = max(slowest, time.perf_counter() - started)
        if done % 10_000 == 0:
            first = first or used_mib()
    seconds = time.perf_counter() - began
    sys.stdout.write(
        f"{done} inputs in {seconds:.0f} s, {fuzzer.malformed()} reported as malformed; "
        f"slowest round of {ROUND}: {slowest * 1000:.0f} ms; "
        f"memory grew by {used_mib() - first} MiB to {used_mib()} MiB\n"
    )
    return 0


def used_mib() -> int:
    """Return the most memory that this process has used."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


if __name__ == "__main__":
    sys.exit(main())
