"""Rewrites manifests of other schedulers to ours, and ours to Koordinator's.

`table` says what becomes of each key; the rewriting and the documentation both follow it. Works on
documents in memory: knows neither files nor clusters.
"""
