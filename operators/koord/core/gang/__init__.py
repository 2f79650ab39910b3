"""Gangs: who belongs, who is missing, what state a gang is in. Knows nothing of nodes."""
