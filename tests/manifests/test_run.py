"""The operators run with the shipped roles and nothing else."""

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.manifests.series import make_gpu_collector, make_metrics
from tests.support.operators import run_operators

from koord.runtime.registry import OPERATORS

pytestmark = pytest.mark.sandbox


@pytest.mark.parametrize(
    ("account", "arguments"),
    [
        ("koord-operators", ()),
        *((f"koord-{name}", (f"--operator={name}",)) for name in OPERATORS),
    ],
)
def test_every_account_gets_ready_without_refused_requests(separate, tmp_path, account, arguments):
    kubeconfig = separate.kubeconfig_for("koord-system", account)
    with run_operators(kubeconfig, tmp_path, *arguments) as operators:
        assert operators.get("/healthz") == (200, "ok\n")
    assert "orbidden" not in operators.read_log()


def names_in(text: str) -> set[str]:
    """Return the served series, without those of creation times."""
    names = {family.name for family in text_string_to_metric_families(text)}
    return {name for name in names if not name.endswith("_created")}


ON_DEMAND = {
    *("koord_load_nodes", "koord_load_nodes_above_threshold"),
    *("koord_audit_records", "koord_audit_dropped"),
    *("koord_owners_unknown_pods", "koord_usage_milligpu_seconds", "koord_usage_resource_seconds"),
    *("koord_capacity_milligpus", "koord_usage_budget_gpu_hours"),
    *("koord_over_commit_nodes", "koord_over_commit_offered", "koord_over_commit_writes"),
    *("koord_node_slo_nodes", "koord_node_ratio_nodes"),
    *("koord_device_allocation_info", "koord_device_allocated_milligpus"),
    *("koord_device_memory_limit_bytes", "koord_device_allocations_left_out"),
}
"""Series that are served while settings are on, such as ``loadAware`` and ``audit``."""


def test_the_series_of_the_alerts_are_served(separate, tmp_path):
    kubeconfig = separate.kubeconfig_for("koord-system", "koord-operators")
    with run_operators(kubeconfig, tmp_path) as operators:
        status, text = operators.get("/metrics")
    assert status == 200
    of_agents = {family.name for family in make_gpu_collector().collect()}
    assert names_in(text) == names_in(make_metrics().encode().decode()) - ON_DEMAND - of_agents
