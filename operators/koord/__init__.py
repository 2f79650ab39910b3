"""Koordinator's scheduling for AI and batch jobs, as operators for any Kubernetes cluster."""

__version__ = "0.1.0"
