"""Prints the slowest tests of a run and those that needed a second try.

Reads the JUnit files that pytest has written to one folder. Exits with 1 if more than
``MOST_RETRIED`` tests needed a second try.
"""

import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree as ET

SLOWEST = 40
MOST_RETRIED = 2
SECOND_TRY = "*-second-try.xml"


def read_tests(file: Path) -> list[tuple[float, str]]:
    """Return seconds and name of every test in a file."""
    cases = ET.parse(file).iter("testcase")  # noqa: S314 - written by our own pytest
    return [
        (float(case.get("time", 0)), f"{case.get('classname')}::{case.get('name')}")
        for case in cases
    ]


def count_skipped(file: Path) -> Counter[str]:
    """Return why tests in a file were skipped, and how many."""
    skips = ET.parse(file).iter("skipped")  # noqa: S314 - written by our own pytest
    return Counter(skip.get("message", "") for skip in skips)


def main(folder: Path) -> int:
    files = sorted(folder.glob("*.xml"))
    tests = sorted((test for file in files for test in read_tests(file)), reverse=True)
    print(f"slowest {SLOWEST} of {len(tests)} tests ({sum(time for time, _ in tests):.0f} s):")
    for seconds, name in tests[:SLOWEST]:
        print(f"{seconds:7.1f} s  {name}")
    for reason, count in sum(map(count_skipped, files), Counter[str]()).most_common():
        print(f"{count} tests were skipped: {reason}")
    retried = [test for file in sorted(folder.glob(SECOND_TRY)) for test in read_tests(file)]
    print(f"{len(retried)} tests needed a second try, {MOST_RETRIED} may:")
    for _, name in retried:
        print(f"  {name}")
    return int(len(retried) > MOST_RETRIED)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
