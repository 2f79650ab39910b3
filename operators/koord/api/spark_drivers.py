"""Whether drivers of Spark leave room for executors: these exist only once their driver runs.

No room is held for executors, so drivers that share a quota with them may fill it, and wait for
executors that never fit. Knows no cluster.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from koord.api.job_disruptions import opts_in
from koord.api.keys import quota
from koord.api.parse import Problem, cut, format_field
from koord.api.untyped import to_map
from koord.api.workloads import Document

_GROUP: Final = "sparkoperator.k8s.io/"
_NO_QUOTA: Final = (
    "is missing: drivers start before their executors, and may leave no room for these. Give them "
    "a quota of their own (docs/recipes/spark.md)"
)
_SAME_QUOTA: Final = (
    "is that of the executors: drivers start before these, and may leave no room for them. Give "
    "drivers a quota of their own (docs/recipes/spark.md)"
)
_WHERE: Final = ("spec", "driver", "template", "metadata", "labels", quota.NAME)


def find_driver_problems(document: Document) -> Iterator[Problem]:
    """Yield what is wrong with the quota of the driver of a SparkApplication that opts in."""
    is_spark = str(document.get("apiVersion", "")).startswith(_GROUP)
    if not is_spark or document.get("kind") != "SparkApplication":
        return
    spec = to_map(document.get("spec"))
    driver, executor = to_map(spec.get("driver")), to_map(spec.get("executor"))
    if not opts_in(to_map(driver.get("template"))):
        return
    own = _quota_of(driver)
    if not own:
        yield Problem(format_field(_WHERE), "", _NO_QUOTA)
    elif own == _quota_of(executor):
        yield Problem(format_field(_WHERE), cut(own), _SAME_QUOTA)


def _quota_of(role: Mapping[str, Any]) -> str:
    template = to_map(to_map(role.get("template")).get("metadata"))
    labels = {**to_map(template.get("labels")), **to_map(role.get("labels"))}
    return str(labels.get(quota.NAME) or "")
