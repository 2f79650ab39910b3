"""A long random walk through cycles: ``python -m tests.framework.soak [--steps N]``."""

from __future__ import annotations

import argparse
import random

from tests.framework.walk import Walk

STEPS_PER_CYCLE = 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for seed in range(options.seed, options.seed + -(-options.steps // STEPS_PER_CYCLE)):
        walk = Walk(random.Random(seed).randrange)
        walk.mark()
        for _ in range(STEPS_PER_CYCLE):
            walk.step()
        walk.check_caches()
    print(f"{options.steps} steps in cycles, 0 broken")


if __name__ == "__main__":
    main()
