"""The user-facing API: custom resources, labels and annotations.

The pydantic models are the single source of the CRDs under ``crds/``: fields, bounds, descriptions
and CEL rules are declared once. This package knows neither the planner (``core``) nor the cluster
(``kube``); ``kube`` translates to and from it.
"""

from enum import StrEnum


class Compat(StrEnum):
    """Whose behaviour applies where ours differs; docs/compatibility.md lists the differences."""

    NONE = "none"
    KOORDINATOR = "koordinator"
