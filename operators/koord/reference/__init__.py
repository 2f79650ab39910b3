"""The reference: every key, field, condition, series and setting, with what it means.

Keys, fields and settings are read from the code that defines them, and cannot be out of date;
conditions and series are explained in TOML files beside this module. Commands are added by ``cli``,
which prints entries; ``tools/reference.py`` makes the pages of them.
"""
