"""The command: `python -m benchmarks.parity`. Ends with 1 if anything differs.

See "Which nodes a pod may use" in docs/compatibility.md.
"""

import argparse
import sys

from benchmarks.parity.cases import NODES
from benchmarks.parity.scheduler import Extender, running_scheduler
from benchmarks.parity.worlds import Round, Tally
from koord_sandbox import Sandbox

_SUBJECTS = 110


def main() -> int:
    """Compare until enough pairs were checked."""
    asked = _parse()
    tally, extender = Tally(), Extender()
    with Sandbox(components=[]) as box, running_scheduler(box, extender):
        seed = asked.seed
        while tally.pairs < asked.pairs:
            left = -(-(asked.pairs - tally.pairs) // NODES)
            subjects = min(asked.pods, left)
            Round(box.client, extender, seed).run(tally, subjects, with_mutants=asked.mutants)
            print(f"seed {seed}: {tally.pairs} pairs, {len(tally.differences)} pods differ")
            seed += 1
    extender.close()
    _report(tally, with_mutants=asked.mutants)
    return int(bool(tally.differences or (asked.mutants and tally.unnoticed)))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.parity",
        description="Compares on which nodes pods may go with what a real kube-scheduler says.",
    )
    parser.add_argument("--pairs", type=int, default=10_000, help="pairs of a pod and a node")
    parser.add_argument("--pods", type=int, default=_SUBJECTS, help="pods per cluster")
    parser.add_argument("--seed", type=int, default=1, help="of the first cluster")
    parser.add_argument(
        "--mutants", action="store_true", help="also see whether broken rules are found out"
    )
    return parser.parse_args()


def _report(tally: Tally, *, with_mutants: bool) -> None:
    if with_mutants:
        for name, pods in tally.found_out.items():
            print(f"{pods:6d} pods find out that we {name}")
    for difference in tally.differences:
        print(difference)
    print(
        f"{tally.pods} pods on {NODES} nodes each: {tally.pairs} pairs, "
        f"{tally.feasible} of them feasible, {tally.asked_again} pods asked again, "
        f"{len(tally.differences)} pods differ"
    )


if __name__ == "__main__":
    sys.exit(main())
