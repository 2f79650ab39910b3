"""Gangs of pods that name none: found from the objects that own them."""
