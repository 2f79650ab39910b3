"""The operators: one module per custom resource, and ``placement``, which plans and writes pods.

Controllers connect what is decided (core) with how it is written (kube). They hold no rule of
scheduling and speak no HTTP.
"""
