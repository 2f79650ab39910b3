"""Rows as CSV, JSON lines and Parquet, for other programs.

CSV is that of RFC 4180. No cell of it is a formula to a spreadsheet or steers a terminal, whoever
wrote the name in it.
"""

import csv
import io
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any

from koord.answers.usage_rows import Row
from koord.cli.common import ExitCode, fail, write_document
from koord.cli.output import encode_json
from koord.cli.usage_options import UsageOutput
from koord.plain_text import escape_line

_FORMULA = frozenset("=+-@\uff1d\uff0b\uff0d\uff20")
"""With what a formula begins; spreadsheets take the wide forms for the same."""
EXTRA = "parquet"
"""The extra of this package that brings pyarrow."""


def write_rows(rows: Iterable[Row], columns: Sequence[str], output: UsageOutput) -> None:
    """Write rows to standard output."""
    if output is UsageOutput.PARQUET:
        if sys.stdout.isatty():
            fail("Parquet is no text: write it to a file, with > usage.parquet", ExitCode.USAGE)
        sys.stdout.buffer.write(format_parquet(rows, columns))
        return
    text = format_csv(rows, columns) if output is UsageOutput.CSV else format_lines(rows)
    write_document(text)


def format_csv(rows: Iterable[Row], columns: Sequence[str]) -> str:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows([_plain_cell(row[column]) for column in columns] for row in rows)
    return text.getvalue()


def _plain_cell(value: str | int | None) -> str:
    text = escape_line("" if value is None else str(value))
    return f"'{text}" if text[:1] in _FORMULA else text


def format_lines(rows: Iterable[Row]) -> str:
    """Return a JSON object on a line for each row."""
    return "".join(f"{encode_json(row).decode()}\n" for row in rows)


def format_parquet(rows: Iterable[Row], columns: Sequence[str]) -> bytes:
    """Return a Parquet file; exits if pyarrow is not installed."""
    try:
        arrow: Any = import_module("pyarrow")
        parquet: Any = import_module("pyarrow.parquet")
    except ImportError:
        fail(
            f"Parquet needs pyarrow, the extra {EXTRA!r}: pip install 'koord-operators[{EXTRA}]'; "
            "--output csv and jsonl do not",
            ExitCode.USAGE,
        )
    listed = list(rows)
    arrays: Mapping[str, Any] = {
        column: _make_array(arrow, [row[column] for row in listed]) for column in columns
    }
    sink = io.BytesIO()
    parquet.write_table(arrow.table(arrays), sink)
    return sink.getvalue()


def _make_array(arrow: Any, values: list[str | int | None]) -> Any:
    """Return a column: integers, as decimals where 64 bits are too few, else text."""
    numbers = [value for value in values if isinstance(value, int)]
    if any(isinstance(value, str) for value in values):
        return arrow.array(values, arrow.string())
    if any(abs(number) >= 1 << 63 for number in numbers):
        return arrow.array([None if n is None else str(n) for n in values], arrow.string())
    return arrow.array(values, arrow.int64())
