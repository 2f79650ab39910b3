"""Waits for the kinds that a CustomResourceDefinition brings.

Between the definition's creation and the first list that is answered there are 404s, while the
API server installs the kind, and then 429s, while it fills its cache. A test that meets one of
them has found a bug of the test only.
"""

import time
from typing import Any

from koord.sandbox.client import AdminClient
from koord.sandbox.errors import SandboxApiError

_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_NOT_YET = {404, 429, 503}
_PATIENCE = 30.0  # seconds
_INTERVAL = 0.05


def wait_until_served(client: AdminClient, name: str) -> None:
    """Return when objects of that definition can be listed, in every version served."""
    spec = client.get(f"{_DEFINITIONS}/{name}")["spec"]
    for version in spec["versions"]:
        if version["served"]:
            _wait_for_list(client, _make_path(spec, version["name"]))


def _make_path(spec: dict[str, Any], version: str) -> str:
    return f"/apis/{spec['group']}/{version}/{spec['names']['plural']}?limit=1"


def _wait_for_list(client: AdminClient, path: str) -> None:
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            client.get(path)
        except SandboxApiError as error:
            if error.status not in _NOT_YET or time.monotonic() > deadline:
                raise
        else:
            return
        time.sleep(_INTERVAL)
