"""``koord page`` as a user runs it: her own rights, a key, and answers that follow the cluster."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError

from tests.cases.test_ordinary_user import User

from koord.see.app import BASE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.operators.conftest import Cluster


class Page:
    """A running ``koord page``."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(4)]
        (self.address,) = re.findall(r"(http://\S+)/apis", lines[1])
        self.key = lines[3].removeprefix("key: ").strip()

    def get(self, path: str) -> Any:
        headers = {"Authorization": f"Bearer {self.key}"}
        request = urllib.request.Request(f"{self.address}{BASE}/{path}", headers=headers)  # noqa: S310
        with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310 - on loopback
            return json.load(response)

    def wait_for(self, path: str) -> Any:
        """Return an answer once the cluster has been read."""
        while True:
            try:
                return self.get(path)
            except HTTPError as error:
                if error.code != 503:
                    raise
                time.sleep(0.1)


@contextmanager
def open_page(config: Path) -> Iterator[Page]:
    command = [sys.executable, "-u", "-m", "koord", "page", "--kubeconfig", str(config)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Page(process)
        finally:
            process.terminate()


def test_a_user_of_one_namespace_gets_answers_and_no_names_of_others(
    cluster: Cluster, tmp_path: Path
) -> None:
    User(cluster, tmp_path)
    cluster.add_nodes(1)
    cluster.gang("big", 2)
    cluster.expect_group("big", "InsufficientNodes")
    with open_page(tmp_path / "kubeconfig") as page:
        queue = page.wait_for("queue")
        names = [name for row in queue["value"]["items"] for name in row["names"]]
        assert f"{cluster.namespace}/big" in names
        assert all(name is None or name.startswith(f"{cluster.namespace}/") for name in names)
        assert {gap["because"] for gap in queue["gaps"]} == {"NoRight"}
        asked = f"namespaces/{cluster.namespace}/explanations/podgroup/big"
        explanation = page.get(asked)["value"]
        assert explanation["standing"] == "Waiting"
        assert explanation["reported"]["reason"] == "InsufficientNodes"
        story = page.get(f"namespaces/{cluster.namespace}/stories/podgroup/big")
        assert story["value"]["phases"]
        assert {gap["because"] for gap in story["gaps"]} >= {"NoFeed"}
