"""From objects as they stand in JSON to the values of the core, one module per kind.

Objects of a cluster repeat themselves: ten thousand pods of one job differ in their names only.
Each part is therefore looked up by its raw bytes first and parsed only when it is new.
"""
