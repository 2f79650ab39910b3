"""What users write: custom resources, labels and annotations.

The pydantic models here are the single source of the CRDs under ``crds/``: a field, its bounds, its
description and its CEL rule are declared once. This package knows neither the planner (``core``)
nor the cluster (``kube``); both directions are translated in ``kube``.
"""
