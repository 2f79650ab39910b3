"""Metrics only for those who may read them, as the API server says."""

import http.client
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.manifests.conftest import MANIFESTS
from tests.support.operators import RunningOperators, run_operators

from koord_sandbox import Sandbox

pytestmark = pytest.mark.sandbox

Read = Callable[[str], int]
"""Reads the metrics with a header ``Authorization``; returns the status."""


def read_metrics(operators: RunningOperators, authorization: str) -> int:
    with closing(http.client.HTTPConnection("127.0.0.1", operators.port, timeout=10)) as connection:
        headers = {"Authorization": authorization} if authorization else {}
        connection.request("GET", "/metrics", headers=headers)
        return connection.getresponse().status


@pytest.fixture(scope="module")
def read(separate: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Read]:
    separate.kubectl("apply", "-k", str(MANIFESTS / "overlays" / "metrics"))
    kubeconfig = separate.kubeconfig_for("koord-system", "koord-networktopology")
    folder = tmp_path_factory.mktemp("operators")
    settings = "metricsAuthorization: true\n"
    with run_operators(
        kubeconfig, folder, "--operator=networktopology", settings=settings
    ) as operators:
        yield lambda authorization: read_metrics(operators, authorization)


def bearer(box: Sandbox, account: str) -> str:
    box.kubectl("create", "serviceaccount", account, "--namespace=default")
    return f"Bearer {box.kubectl('create', 'token', account, '--namespace=default').strip()}"


@pytest.mark.parametrize("header", ["", "Bearer ", "Bearer x", "Bearer \xe4", "Basic YTpi"])
def test_metrics_need_a_valid_token(read: Read, header: str) -> None:
    assert read(header) == 401


def test_metrics_need_the_right_to_read_them(separate: Sandbox, read: Read) -> None:
    assert read(bearer(separate, "nobody")) == 403
    header = bearer(separate, "reader")
    role = ["--clusterrole=koord-metrics-reader", "--serviceaccount=default:reader"]
    separate.kubectl("create", "clusterrolebinding", "reader", *role)
    assert read(header) == 200
    separate.kubectl("delete", "clusterrolebinding", "reader")
    assert read(header) == 200, "for a minute it is not asked again"


def test_nobody_may_read_them_while_the_operators_may_not_ask(
    separate: Sandbox, tmp_path: Path
) -> None:
    separate.kubectl("delete", "-k", str(MANIFESTS / "overlays" / "metrics"), "--ignore-not-found")
    kubeconfig = separate.kubeconfig_for("koord-system", "koord-networktopology")
    settings = "metricsAuthorization: true\n"
    with run_operators(
        kubeconfig, tmp_path, "--operator=networktopology", settings=settings
    ) as operators:
        assert read_metrics(operators, "Bearer x") == 503
        assert operators.get("/healthz")[0] == 200
