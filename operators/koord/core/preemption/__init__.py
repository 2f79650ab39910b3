"""Preemption: running units that make room for a waiting one of higher priority."""
