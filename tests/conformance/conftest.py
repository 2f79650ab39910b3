"""Generates tests from conformance vectors, and reports the results per kind."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from tests.conformance.cases import BadVectorsError, Case, load_cases

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PROPERTY = "vector"
OUTCOMES = {"passed": "passed", "failed": "failed", "skipped": "unsupported"}


@dataclass
class KindResults:
    """Results of one kind; ``counted`` does not include optional cases."""

    outcomes: Counter[str] = field(default_factory=Counter)
    counted: Counter[str] = field(default_factory=Counter)
    optional: int = 0


RESULTS = pytest.StashKey[dict[str, KindResults]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[RESULTS] = {}
    config.pluginmanager.register(_Recorder(config), "conformance-recorder")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" not in metafunc.fixturenames:
        return
    try:
        cases = load_cases(metafunc.config.getoption("vectors"))
    except BadVectorsError as error:
        raise pytest.UsageError(str(error)) from error
    metafunc.parametrize("case", cases, ids=[f"{case.full_kind}-{case.id}" for case in cases])


@pytest.fixture
def vector(case: Case, record_property: Callable[[str, object], None]) -> Case:
    """The case, recorded as a property of the test report."""
    record_property(PROPERTY, [case.full_kind, case.is_optional])
    return case


class _Recorder:
    """Counts reports; a plugin, so that it also sees reports of other conftest scopes."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        noted = dict(report.user_properties).get(PROPERTY)
        if noted is None or (report.when != "call" and not report.failed):
            return
        kind, is_optional = noted
        results = self._config.stash[RESULTS].setdefault(kind, KindResults())
        outcome = OUTCOMES[report.outcome]
        results.outcomes[outcome] += 1
        results.optional += is_optional
        if not is_optional:
            results.counted[outcome] += 1

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        results = self._config.stash[RESULTS]
        if not results:
            return
        report = make_report(results)
        terminalreporter.section("conformance")
        for line in write_table(report):
            terminalreporter.line(line)
        file: Path | None = self._config.getoption("vectors_report")
        if file is not None:
            file.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def make_report(results: dict[str, KindResults]) -> dict[str, object]:
    """Write ``passed`` and ``total`` over the cases that count, and every kind on its own."""
    counted = sum((kind.counted for kind in results.values()), Counter())
    return {
        "passed": counted["passed"],
        "total": counted.total(),
        "kinds": {
            name: {
                "passed": kind.outcomes["passed"],
                "failed": kind.outcomes["failed"],
                "unsupported": kind.outcomes["unsupported"],
                "total": kind.outcomes.total(),
                "optional": kind.optional,
            }
            for name, kind in sorted(results.items())
        },
    }


def write_table(report: dict[str, object]) -> list[str]:
    """Write one line per kind, and the totals without optional cases."""
    lines = [
        f"{'kind':<44}{'passed':>8}{'failed':>8}{'unsupported':>13}{'total':>7}{'optional':>10}"
    ]
    lines += [
        f"{name:<44}{kind['passed']:>8}{kind['failed']:>8}{kind['unsupported']:>13}"
        f"{kind['total']:>7}{kind['optional']:>10}"
        for name, kind in report["kinds"].items()
    ]
    return [*lines, f"{report['passed']} of {report['total']} cases that count passed"]
