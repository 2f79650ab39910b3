"""A real Kubernetes control plane on this machine, for demo, tests and benchmarks.

    with Sandbox(components=[Component.KWOK]) as box:
        box.add_nodes(8, "a100x8")
        box.apply("examples/")

It does not know the operators, which run against it as against any cluster.
"""

from koord_sandbox.audit import AuditedWrite
from koord_sandbox.box import ControlPlane, Sandbox
from koord_sandbox.components import Component
from koord_sandbox.errors import SandboxError
from koord_sandbox.nodes import list_shapes, load_shape, make_node

__all__ = [
    "AuditedWrite",
    "Component",
    "ControlPlane",
    "Sandbox",
    "SandboxError",
    "list_shapes",
    "load_shape",
    "make_node",
]
