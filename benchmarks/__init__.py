"""Benchmarks: `python -m benchmarks` places pods, `benchmarks.plan` plans.

Figures depend on the machine, so they are given beside those of clients that do not think, in the
same run. Nothing of it is a test, and nothing in the package `koord` knows of it.
"""
