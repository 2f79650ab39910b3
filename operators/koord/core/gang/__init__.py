"""Gangs: their members, quorum and status. Knows no node capacity."""
