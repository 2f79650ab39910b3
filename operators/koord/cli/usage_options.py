"""Formats in which usage is printed; imports only what ``--help`` needs."""

from enum import StrEnum


class UsageOutput(StrEnum):
    """Output format of usage: that of other answers, or a table for other programs."""

    TEXT = "text"
    NAME = "name"
    JSON = "json"
    ANSWER = "answer"
    YAML = "yaml"
    SVG = "svg"
    CSV = "csv"
    """With integers besides hours, for spreadsheets and databases."""
    JSONL = "jsonl"
    """A JSON object for each row."""
    PARQUET = "parquet"
    """For data frames; needs pyarrow."""


class ReportOutput(StrEnum):
    """Format of a report."""

    MARKDOWN = "markdown"
    HTML = "html"
    JSON = "json"
