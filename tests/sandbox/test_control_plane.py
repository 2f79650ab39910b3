from koord.sandbox import Sandbox


def test_writes_of_a_service_account_are_counted(sandbox: Sandbox, namespace: str) -> None:
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    sandbox.client.create(accounts, {"metadata": {"name": "writer"}})
    sandbox.kubectl(
        *("create", "rolebinding", "writer", "--clusterrole=edit"),
        *(f"--serviceaccount={namespace}:writer", f"--namespace={namespace}"),
    )
    kubeconfig = sandbox.kubeconfig_for(namespace, "writer")

    for name in ("a", "b"):
        sandbox.kubectl(
            *("create", "configmap", name),
            *(f"--kubeconfig={kubeconfig}", f"--namespace={namespace}"),
        )

    writes = sandbox.writes(f"system:serviceaccount:{namespace}:writer")
    assert [(write.verb, write.resource, write.name, write.code) for write in writes] == [
        ("create", "configmaps", "a", 201),
        ("create", "configmaps", "b", 201),
    ]
