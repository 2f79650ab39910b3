"""The reference: every key, field, condition, series and setting, with what it means.

Keys, fields and settings are read from the code that defines them, and cannot be out of date;
series are explained in a TOML file beside this module, conditions in that of ``answers``,
which gives their advice. Commands are added by ``cli``,
which prints entries; ``tools/reference.py`` makes the pages of them.
"""
