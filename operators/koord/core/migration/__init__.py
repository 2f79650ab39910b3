"""Migration: pods that are moved to other nodes, where their places are reserved first."""
