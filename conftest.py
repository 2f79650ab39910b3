"""Options of the test suite; pytest reads them before it collects tests."""

import gc
import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# The benchmarks are no part of what is installed; tests find them in the checkout.
if str(ROOT := Path(__file__).parent) not in sys.path:
    sys.path.append(str(ROOT))

# No deadline: the time of an example depends on the load of the machine. Examples are the same in
# every run, so that a change is judged by itself; `make laws` and `make soak` look for new ones.
settings.register_profile("ci", deadline=None, derandomize=True, max_examples=50)
settings.register_profile(
    "laws",
    deadline=None,
    derandomize=False,
    max_examples=int(os.environ.get("EXAMPLES") or 10_000),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ci")

# Until the tests are collected nothing but what stays is made: looking for garbage there takes
# a third of the time.
gc.disable()
_RARELY = (50_000, 20, 50)

_VECTORS = ROOT / "tests" / "conformance" / "vectors"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of the conformance tests."""
    group = parser.getgroup("conformance")
    group.addoption(
        "--vectors",
        type=Path,
        default=_VECTORS,
        metavar="DIR",
        help="folder of JSON files with conformance vectors (default: the project's own)",
    )
    group.addoption(
        "--vectors-report",
        type=Path,
        metavar="FILE",
        help="write the results of the conformance vectors to FILE, as JSON",
    )


def pytest_collection_finish() -> None:
    """Look for garbage of the tests, not among modules and the tests themselves."""
    gc.freeze()
    gc.set_threshold(*_RARELY)
    gc.enable()
