"""Translates objects from JSON to the values of the core.

Objects repeat: the pods of one job differ only in their names. So parts of an object are looked up
by their raw bytes, and parsed only when they are new.
"""
