"""Attacks of tenants, played on a sandbox with the operators that we ship.

The cluster is that of ``tests/operators``; its hook marks what uses it as needing a sandbox.
"""

from tests.operators.conftest import (
    cluster,
    operators,
    operators_box,
    pytest_collection_modifyitems,
    quiet_cluster,
)

__all__ = [
    "cluster",
    "operators",
    "operators_box",
    "pytest_collection_modifyitems",
    "quiet_cluster",
]
