"""Answers over HTTP, for programs and pages. Reads only; has no rights but those of who asks."""
