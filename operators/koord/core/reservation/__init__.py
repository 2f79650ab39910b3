"""Reservations: room on a node that is held for pods to come."""
