"""Defragmentation: which running pods have to move so that a waiting unit fits."""
