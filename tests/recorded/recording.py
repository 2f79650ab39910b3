"""Digests of what was decided, what was met on the way, and the file that keeps both."""

from __future__ import annotations

import json
from collections import Counter
from hashlib import blake2s
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.recorded.adapter import decide
from tests.recorded.scenarios import make_scenario

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.recorded.scenarios import Scenario

FILE: Final = Path(__file__).with_name("recorded.json")
NUMBERS: Final = range(1500)


def canonical(value: object) -> str:
    """Write a value in the one way that its digest is made of."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def digest_of(value: object) -> str:
    """Return the short digest of a value."""
    return blake2s(canonical(value).encode(), digest_size=6).hexdigest()


def find_differences(numbers: Iterable[int]) -> list[str]:
    """Plan these scenarios; say of each that is not as recorded how to look at it."""
    recorded = json.loads(FILE.read_text())["digests"]
    return [
        f"scenario {number} has other plans than recorded;"
        f" to print them: python -m tests.recorded show {number}"
        for number in numbers
        if digest_of(decide(make_scenario(number))) != recorded.get(str(number))
    ]


class Tally:
    """Counts what scenarios have exercised."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()
        self.jobs: dict[str, list[int]] = {}
        """Feature -> jobs with it, of those placed (in part or whole), refused."""

    def add(self, scenario: Scenario, rounds: list[dict[str, Any]]) -> None:
        """Count what was decided about one scenario."""
        placed, refused = set(), set()
        for one in rounds:
            for placement in one["placements"]:
                placed |= {scenario.job_of[pod] for pod, _ in placement["nodes"]}
            for refusal in one["refusals"]:
                refused |= {scenario.job_of[pod] for pod in refusal["pods"]}
            self._count_round(one)
        for job, features in scenario.features.items():
            for feature in features:
                counts = self.jobs.setdefault(feature, [0, 0, 0])
                counts[0] += 1
                counts[1] += job in placed
                counts[2] += job in refused

    def _count_round(self, one: dict[str, Any]) -> None:
        gathered = [where for placement in one["placements"] for where in placement["gathered"]]
        whole = {placement["unit"] for placement in one["placements"]}
        self.outcomes["rounds"] += 1
        self.outcomes["placements"] += len(one["placements"])
        self.outcomes["placed pods"] += sum(len(each["nodes"]) for each in one["placements"])
        self.outcomes["refusals"] += len(one["refusals"])
        self.outcomes["surplus left over"] += sum(
            refusal["unit"] in whole for refusal in one["refusals"]
        )
        self.outcomes["gathered"] += len(gathered)
        self.outcomes["gathered with a gap"] += sum(where["gap"] is not None for where in gathered)
        self.outcomes["rounds with room kept"] += bool(one["kept"])
        self.outcomes["rounds after leftovers were given"] += bool(one["leftovers"])
        for refusal in one["refusals"]:
            reason = refusal["reason"]
            self.refusals[reason["code"]] += 1
            self.outcomes["refusals by quotas"] += "request" in reason and "topo" in reason
            for cause in reason.get("refused", ()):
                self.refusals[f"{reason['code']}: {cause['refusal']}"] += 1

    def to_plain(self) -> dict[str, Any]:
        """Return all counts, sorted."""
        return {
            "outcomes": dict(sorted(self.outcomes.items())),
            "refusals": dict(sorted(self.refusals.items())),
            "jobs with a feature (all, placed, refused)": dict(sorted(self.jobs.items())),
        }


def record(full: Path | None = None) -> dict[str, Any]:
    """Plan every scenario; return what the file is to hold, and write all plans to ``full``."""
    tally, digests, lines = Tally(), {}, []
    for number in NUMBERS:
        scenario = make_scenario(number)
        rounds = decide(scenario)
        tally.add(scenario, rounds)
        digests[str(number)] = digest_of(rounds)
        lines.append(canonical({"number": number, "rounds": rounds}))
    if full is not None:
        full.write_text("\n".join(lines) + "\n")
    return {"counts": tally.to_plain(), "digests": digests}
