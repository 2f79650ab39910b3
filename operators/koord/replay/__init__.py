"""Snapshots of what plans depend on, and the same plans made of them again, without a cluster."""
