"""Tells the policy ``koord-enforce`` which namespaces quotas cover: writes its ConfigMap.

The overlay ``enforce`` brings the policy, the ConfigMap and the rights to both. Where these are
missing nothing is enforced, and nothing is written.
"""

from collections.abc import Callable, Mapping
from typing import Final

from koord.kube.client import Client, Media
from koord.kube.errors import Forbidden, NotFound
from koord.kube.wire import Identified
from koord.kube.write_check import Write, is_allowed

CONFIG_MAP: Final = "koord-covered-namespaces"
MAX_BYTES: Final = 900_000
"""Of all names and values: the API server takes a ConfigMap of a megabyte."""
_BINDING: Final = (
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/koord-enforce"
)


class EnforcementMap:
    """The ConfigMap in the namespace of the operators, which ``namespace`` returns."""

    def __init__(self, client: Client, namespace: Callable[[], str]) -> None:
        self._client = client
        self._namespace = namespace

    async def write(self, covered: Mapping[str, frozenset[str]]) -> frozenset[str] | None:
        """Replace what is there; return the namespaces that are enforced, None if nothing is."""
        namespace = self._namespace()
        write = Write("", "configmaps", "patch", namespace, CONFIG_MAP)
        if not await is_allowed(self._client, write):
            return None
        data = encode(covered)
        try:
            await self._client.get(_BINDING, Identified)
            body = [{"op": "add", "path": "/data", "value": data}]
            path = f"/api/v1/namespaces/{namespace}/configmaps/{CONFIG_MAP}"
            await self._client.patch(path, body, Media.JSON_PATCH)
        except (Forbidden, NotFound):
            return None
        return frozenset(data)


def encode(covered: Mapping[str, frozenset[str]]) -> dict[str, str]:
    """Return namespace -> resources, by name, as far as there is room."""
    data, size = dict[str, str](), 0
    for namespace, names in sorted(covered.items()):
        text = ",".join(sorted(names))
        size += len(namespace) + len(text.encode()) + 16
        if size > MAX_BYTES:
            break
        data[namespace] = text
    return data
