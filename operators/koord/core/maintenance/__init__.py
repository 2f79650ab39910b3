"""Maintenance of nodes that is known ahead."""
