"""Records plans of random clusters, compares them with those recorded, or shows those of one."""

import argparse
import json
import sys
from pathlib import Path

from tests.recorded.adapter import decide
from tests.recorded.recording import FILE, NUMBERS, find_differences, record
from tests.recorded.scenarios import make_scenario


def main() -> int:
    """Run one command; 1 if plans differ from those recorded."""
    parser = argparse.ArgumentParser(prog="python -m tests.recorded", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="plan all and write the digests down")
    recording.add_argument("--full", type=Path, help="write all plans to this file, too")
    commands.add_parser("compare", help="plan all and name those that differ")
    showing = commands.add_parser("show", help="print the plans of one")
    showing.add_argument("number", type=int)
    options = parser.parse_args()
    if options.command == "record":
        FILE.write_text(json.dumps(record(options.full), indent=1) + "\n")
        return 0
    if options.command == "show":
        rounds = decide(make_scenario(options.number))
        sys.stdout.write(json.dumps(rounds, indent=1, sort_keys=True) + "\n")
        return 0
    differences = find_differences(NUMBERS)
    text = "\n".join(differences) or f"all {len(NUMBERS)} are as recorded"
    sys.stdout.write(text + "\n")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
