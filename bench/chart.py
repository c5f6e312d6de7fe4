"""Draws bar charts from the last lines of benchmarks: samples per second of each peer on
one core (`make bench-decode`), or the bytes that an epoch reads from the disk
(`make bench-cache`).

    make bench-decode | tee decode.log
    .venv/bin/python bench/chart.py decode.log docs/results/decode.svg
"""

import json
import sys
from xml.sax.saxutils import escape

ROW, LEFT, WIDTH, TOP, SIZE = 26, 215, 430, 44, 720


def bar(row, most, name, value, text, ours):
    y = TOP + row * ROW
    colour = "#0b6e4f" if ours else "#9aa5b1"
    weight = "bold" if ours else "normal"
    length = WIDTH * value / most
    return (f'<text x="{LEFT - 10}" y="{y + 15}" text-anchor="end" font-weight="{weight}">'
            f"{escape(name)}</text>"
            f'<rect x="{LEFT}" y="{y + 2}" width="{length:.1f}" height="{ROW - 8}" rx="2" '
            f'fill="{colour}"/>'
            f'<text x="{LEFT + length + 8:.1f}" y="{y + 15}" font-weight="{weight}">{text}</text>')


def decode_bars(figures):
    """Returns (title, [(name, value, value as text, whether it is Headrace's)])."""
    rates = sorted(figures["samples_per_s"].items(), key=lambda item: -item[1])
    return ("JPEG to training tensor, samples/s on one core (more is better)",
            [(name, rate, f"{rate:,.0f}", name.startswith("Headrace")) for name, rate in rates])


def cache_bars(figures):
    """The same for `make bench-cache`, with the shares that were measured."""
    peers = {"reads": "Headrace", "torch_reads": "torch DataLoader",
             "page_cache_reads": "Headrace, page cache"}
    bars = []
    for share in (35, 50, 65, 80):
        for key, name in peers.items():
            value = figures.get(f"{key}_over_minimum_{share}")
            if value is not None:
                bars.append((f"{share} %: {name}", value, f"{value:.2f}", key == "reads"))
    return "Bytes an epoch reads, relative to the least possible, by memory (less is better)", bars


BARS = {"decode": decode_bars, "cache": cache_bars}


def chart(title, rows):
    most = max(row[1] for row in rows)
    height = TOP + ROW * len(rows) + 14
    bars = "\n".join(bar(i, most, *row) for i, row in enumerate(rows))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{SIZE}" height="{height}" '
            f'viewBox="0 0 {SIZE} {height}" font-family="system-ui, sans-serif" font-size="13" '
            f'fill="#1f2933">\n<rect width="{SIZE}" height="{height}" fill="#ffffff"/>\n'
            f'<text x="20" y="24" font-size="15" font-weight="bold">{escape(title)}</text>\n'
            f"{bars}\n</svg>\n")


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: bench/chart.py LOG OUT.svg")
    with open(sys.argv[1]) as f:
        last = json.loads(f.read().strip().splitlines()[-1])
    with open(sys.argv[2], "w") as f:
        f.write(chart(*BARS[last["bench"]](last["figures"])))


if __name__ == "__main__":
    main()
