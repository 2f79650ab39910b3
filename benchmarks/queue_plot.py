"""A picture of the figures of policies: bars, as SVG."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PANELS: Final = (
    ("wait of 1 GPU, median, minutes", "wait p50 1", "#4c78a8", "{:.0f}"),
    ("wait of > 64 GPUs, p95, hours", "wait p95 > 64", "#e45756", "{:.0f}"),
    ("GPUs used, percent", "utilisation", "#54a24b", "{:.1f}"),
)
_NAME, _PANEL, _ROW, _TOP = 210, 210, 22, 40
_HOURS: Final = {"wait p95 > 64": 60}


def draw(rows: Sequence[tuple[str, Mapping[str, float]]]) -> str:
    """Return an SVG: a line for each policy, with a bar for each figure."""
    width = _NAME + len(_PANELS) * _PANEL
    height = _TOP + len(rows) * _ROW + 10
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
    parts = [
        f'{head} font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for at, (title, key, color, form) in enumerate(_PANELS):
        left = _NAME + at * _PANEL
        parts.append(f'<text x="{left}" y="24" font-weight="bold">{escape(title)}</text>')
        values = [figures.get(key, 0.0) / _HOURS.get(key, 1) for _, figures in rows]
        most = max([*values, 1.0])
        for line, value in enumerate(values):
            y = _TOP + line * _ROW
            length = (_PANEL - 60) * value / most
            parts.append(
                f'<rect x="{left}" y="{y}" width="{length:.1f}" height="15" fill="{color}"/>'
                f'<text x="{left + length + 4:.1f}" y="{y + 12}">{form.format(value)}</text>'
            )
    for line, (name, _) in enumerate(rows):
        text = escape(name.replace("`", ""))
        parts.append(f'<text x="6" y="{_TOP + line * _ROW + 12}">{text}</text>')
    return "\n".join([*parts, "</svg>", ""])
