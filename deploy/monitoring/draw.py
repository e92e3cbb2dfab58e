#!/usr/bin/env python3
"""Draws the dashboards in dashboards/ as they look now, with data from a Prometheus: draw.py URL FOLDER [SECONDS]

Writes an SVG for each, covering the last SECONDS (240). Needs only Python; Grafana shows the same more comfortably."""

import json
import math
import re
import sys
import time
import urllib.parse
import urllib.request
from html import escape
from pathlib import Path

UNIT = 44  # pixels of one of the 24 columns of a dashboard, and of a row
STEPS = 120
COLOURS = "#3274d9 #e0752d #56a64b #a352cc #e02f44 #e6b800 #00a2b3 #8f3bb8 #8c564b #7f7f7f".split()
STYLE = """svg { font: 12px system-ui, sans-serif; fill: #1f2329; background: #f4f5f5 }
.panel { fill: #fff; stroke: #d8dadf } .title { font-weight: 600 } .grid { stroke: #e8e9ec } .axis { fill: #6b7280; font-size: 10px }
.line { fill: none; stroke-width: 1.5; stroke-linejoin: round } .stat { font-size: 30px; text-anchor: middle }
.none { fill: #9aa0a8; text-anchor: middle }
@media (prefers-color-scheme: dark) { svg { fill: #d8d9da; background: #111217 } .panel { fill: #181b1f; stroke: #2c3235 }
.grid { stroke: #2a2e33 } .axis { fill: #9096a0 } }"""


def ask(url, expression, begin, end):
    """Yields the series of an expression: labels, and a value for each step that has one."""
    step = (end - begin) / STEPS
    window = f"{max(10, math.ceil(4 * step))}s"
    expression = expression.replace("$__rate_interval", window).replace("$__interval", window)
    # Dashboard variables are set to "all".
    expression = re.sub(r"\$\{?[a-z]\w*\}?", ".*", expression)
    query = urllib.parse.urlencode({"query": expression, "start": begin, "end": end, "step": step})
    with urllib.request.urlopen(f"{url}/api/v1/query_range?{query}", timeout=30) as answer:
        series = json.load(answer)["data"]["result"]
    for one in series:
        values = [(at, float(value)) for at, value in one["values"]]
        yield one["metric"], [(at, value) for at, value in values if math.isfinite(value)]


def spell(value, unit):
    """Formats a number for an axis."""
    if unit == "percentunit":
        return f"{100 * value:.3g} %"
    if unit == "s":
        for size, name in (1, "s"), (1e-3, "ms"), (1e-6, "µs"):
            if abs(value) >= size:
                return f"{value / size:.3g} {name}"
        return "0" if value == 0 else f"{value * 1e9:.3g} ns"
    sizes = [(2**30, " GiB"), (2**20, " MiB"), (2**10, " KiB")] if unit == "bytes" else [(1e6, "M"), (1e3, "k")]
    text = next((f"{value / size:.3g}{name}" for size, name in sizes if abs(value) >= size), f"{value:.3g}")
    return text + {"reqps": "/s", "ops": "/s", "pps": "/s"}.get(unit, "")


def legend(target, labels):
    """Returns the name of a series."""
    written = target.get("legendFormat") or ", ".join(f"{name}={value}" for name, value in labels.items())
    return re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda name: labels.get(name[1], ""), written).strip()


def ceiling(most):
    """Returns a round number that is at least `most`."""
    if most <= 0:
        return 1
    size = 10 ** math.floor(math.log10(most))
    return next(size * factor for factor in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if size * factor >= most * 0.999)


def draw_lines(out, place, unit, series, begin, end):
    """Draws the curves of a panel, with axes and a legend."""
    left, top, width, height = place
    most = ceiling(max(value for _, values in series for _, value in values))
    x = lambda at: left + 58 + (at - begin) / (end - begin) * (width - 72)
    y = lambda value: top + height - 62 - max(value, 0) / most * (height - 100)
    for part in range(5):
        value = most * part / 4
        out.append(f'<line class="grid" x1="{left + 58}" x2="{left + width - 14}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>')
        out.append(f'<text class="axis" x="{left + 52}" y="{y(value) + 3:.1f}" text-anchor="end">{spell(value, unit)}</text>')
    for part in range(5):
        at = begin + (end - begin) * part / 4
        out.append(f'<text class="axis" x="{x(at):.1f}" y="{top + height - 46}" text-anchor="middle">{at - end:.0f} s</text>')
    at, line, left_out = left + 14, 0, 0
    for index, (name, values) in enumerate(series):
        colour = COLOURS[index % len(COLOURS)]
        points = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in values)
        out.append(f'<polyline class="line" stroke="{colour}" points="{points}"/>')
        room = 26 + 6.2 * len(name)
        if at + room > left + width - 10 and line == 0:
            at, line = left + 14, 1
        if left_out or at + room > left + width - 70:
            left_out += 1
            continue
        base = top + height - 26 + 16 * line
        out.append(f'<rect x="{at}" y="{base - 6}" width="10" height="3" fill="{colour}"/>')
        out.append(f'<text x="{at + 14}" y="{base}" font-size="10">{escape(name)}</text>')
        at += room
    if left_out:
        out.append(f'<text x="{left + width - 60}" y="{top + height - 10}" font-size="10">and {left_out} more</text>')


def draw_panel(out, panel, url, begin, end):
    grid = panel["gridPos"]
    left, top = grid["x"] * UNIT + 4, grid["y"] * UNIT + 34
    width, height = grid["w"] * UNIT - 8, grid["h"] * UNIT - 8
    unit = panel.get("fieldConfig", {}).get("defaults", {}).get("unit")
    out.append(f'<rect class="panel" x="{left}" y="{top}" width="{width}" height="{height}" rx="3"/>')
    out.append(f'<text class="title" x="{left + 10}" y="{top + 19}" font-size="{min(12, 1.45 * width / len(panel["title"])):.1f}">{escape(panel["title"])}</text>')
    series = [
        (legend(target, labels), values)
        for target in panel["targets"]
        for labels, values in ask(url, target["expr"], begin, end)
        if values
    ]
    # Curves at zero would only hide the others.
    moving = [one for one in series if any(value for _, value in one[1])]
    series = moving if moving else series[:8]
    series.sort(key=lambda one: -max(value for _, value in one[1]))
    middle = f'x="{left + width / 2}" y="{top + height / 2 + 16}"'
    if not series:
        out.append(f'<text class="none" {middle}>nothing yet</text>')
    elif panel["type"] == "stat":
        out.append(f'<text class="stat" {middle}>{spell(series[0][1][-1][1], unit)}</text>')
    else:
        draw_lines(out, (left, top, width, height), unit, series, begin, end)


def draw(dashboard, url, begin, end):
    panels = dashboard["panels"]
    width = 24 * UNIT
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels) * UNIT + 38
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
        f"<style>{STYLE}</style>",
        f'<text x="8" y="22" font-size="16" font-weight="600">{escape(dashboard["title"])}</text>',
    ]
    for panel in panels:
        draw_panel(out, panel, url, begin, end)
    return "\n".join([*out, "</svg>", ""])


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    url, folder = sys.argv[1].rstrip("/"), Path(sys.argv[2])
    end = time.time()
    begin = end - float((sys.argv[3:] or [240])[0])
    for path in sorted((Path(__file__).parent / "dashboards").glob("*.json")):
        dashboard = json.loads(path.read_text())
        (folder / f"{path.stem}.svg").write_text(draw(dashboard, url, begin, end))


main()
