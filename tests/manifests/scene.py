"""A namespace with a user who has every right on pods, and the identity of the operators."""

import re
import secrets
from functools import cache
from typing import Any

from tests.manifests.attacks import GATE, HAMI, LIMIT, OTHER_GATE, make_pod, release
from tests.manifests.conftest import MANIFESTS, load_all
from tests.manifests.someone import APPLY, JSON_PATCH, STRATEGIC, Someone, create_account
from tests.support.namespaces import empty

from koord_sandbox import Sandbox

EVERYTHING_ON_PODS = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: everything-on-pods}
rules:
  - apiGroups: [""]
    resources:
      - bindings
      - pods
      - pods/binding
      - pods/ephemeralcontainers
      - pods/resize
      - pods/status
    verbs: ["*"]
"""


@cache  # reading all manifests takes a second
def read_policy(name: str) -> dict[str, Any]:
    """Return the spec of a policy that we ship."""
    (found,) = (
        document["spec"]
        for path in MANIFESTS.rglob("*.yaml")
        for document in load_all(path.read_text(encoding="utf-8"))
        if document.get("kind", "").endswith("AdmissionPolicy")
        and document["metadata"]["name"] == name
    )
    return found


def quoted(expression: str) -> set[str]:
    """The string literals of a CEL expression."""
    return set(re.findall(r"'([^']+)'", expression))


def protected_annotations(policy: str = "koord-protect") -> set[str]:
    variables = {one["name"]: one["expression"] for one in read_policy(policy)["variables"]}
    return quoted(variables["results"]) | quoted(variables.get("shared", "")) | {LIMIT}


def protected_state(pod: dict[str, Any]) -> tuple[bool, dict[str, str]]:
    """What the policy protects: whether the pod is held, and the results written on it."""
    written = pod["metadata"].get("annotations", {}) | pod["metadata"].get("labels", {})
    gates = [gate["name"] for gate in pod["spec"].get("schedulingGates", ())]
    results = {key: one for key, one in written.items() if key in {*protected_annotations(), HAMI}}
    return GATE in gates, results


class Scene:
    def __init__(self, box: Sandbox) -> None:
        self.box = box
        self.namespace = f"test-{secrets.token_hex(3)}"
        box.create_namespace(self.namespace)
        box.kubectl("apply", "--filename=-", stdin=EVERYTHING_ON_PODS)
        self.mallory = self.add("mallory", "edit", "everything-on-pods")
        self.operators = Someone(box, "koord-system", "koord-operators")

    def add(self, name: str, *roles: str) -> Someone:
        create_account(self.box, self.namespace, name, roles)
        return Someone(self.box, self.namespace, name)

    def close(self) -> None:
        self.mallory.close()
        self.operators.close()
        empty(self.box.client, self.namespace)

    def hold(self) -> dict[str, Any]:
        """Create a gated pod by server-side apply, so that its creator owns all fields."""
        name = f"p-{secrets.token_hex(3)}"
        path = f"{self.mallory.pods}/{name}?fieldManager=owner"
        return self._done(self.mallory.send("PATCH", path, make_pod(name), APPLY))

    def place(self) -> dict[str, Any]:
        """Create a pod and release it as the operators do."""
        path = f"{self.mallory.pods}/{self.hold()['metadata']['name']}"
        others = {"spec": {"schedulingGates": [{"$patch": "delete", "name": OTHER_GATE}]}}
        self._done(self.mallory.send("PATCH", path, others, STRATEGIC))
        return self._done(self.operators.send("PATCH", path, release(), JSON_PATCH))

    def _done(self, answer) -> dict[str, Any]:
        assert answer.status < 300, answer
        return answer.body
