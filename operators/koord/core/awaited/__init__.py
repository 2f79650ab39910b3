"""Gangs that start with room for pods that come later: a leader, and workers made once it runs."""
