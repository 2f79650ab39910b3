"""Answers for people and programs: why something waits, who uses what. Decides nothing."""
