"""Options of the test suite; here, because pytest reads options before it looks for tests."""

from pathlib import Path

import pytest
from hypothesis import settings

# How long an example takes says more about the machine than about what is tested.
settings.register_profile("koord", deadline=None)
# Many more examples, for the night: pytest --hypothesis-profile=nightly --timeout=0
settings.register_profile("nightly", deadline=None, max_examples=100_000)
settings.load_profile("koord")

_VECTORS = Path(__file__).parent / "tests" / "conformance" / "vectors"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the conformance tests run over any folder of vectors."""
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
