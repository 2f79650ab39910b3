"""The operators run with the shipped roles and nothing else."""

import pytest
from tests.support.operators import run_operators

pytestmark = pytest.mark.sandbox

OPERATORS = ("placement", "podgroup", "elasticquota", "reservation", "networktopology", "device")


@pytest.mark.parametrize(
    ("account", "arguments"),
    [
        ("koord-operators", ()),
        *((f"koord-{name}", (f"--operator={name}",)) for name in OPERATORS),
    ],
)
def test_an_account_gets_ready_without_being_refused_anything(
    separate, tmp_path, account, arguments
):
    kubeconfig = separate.kubeconfig_for("koord-system", account)
    with run_operators(kubeconfig, tmp_path, *arguments) as operators:
        assert operators.get("/healthz") == (200, "ok\n")
    assert "orbidden" not in operators.read_log()
