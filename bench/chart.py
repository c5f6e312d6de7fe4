"""Draws the README's picture: samples per second of each peer on one core, as
bars, from the last line of `make bench-decode`.

    make bench-decode | tee decode.log
    .venv/bin/python bench/chart.py decode.log docs/results/decode.svg
"""

import json
import sys
from xml.sax.saxutils import escape

ROW, LEFT, WIDTH, TOP = 26, 215, 430, 44


def bar(row, name, rate, most):
    y = TOP + row * ROW
    ours = name.startswith("Headrace")
    colour = "#0b6e4f" if ours else "#9aa5b1"
    weight = "bold" if ours else "normal"
    length = WIDTH * rate / most
    return (f'<text x="{LEFT - 10}" y="{y + 15}" text-anchor="end" font-weight="{weight}">'
            f"{escape(name)}</text>"
            f'<rect x="{LEFT}" y="{y + 2}" width="{length:.1f}" height="{ROW - 8}" rx="2" '
            f'fill="{colour}"/>'
            f'<text x="{LEFT + length + 8:.1f}" y="{y + 15}" font-weight="{weight}">{rate:,.0f}</text>')


def chart(figures, title):
    rates = sorted(figures["samples_per_s"].items(), key=lambda item: -item[1])
    height = TOP + ROW * len(rates) + 14
    bars = "\n".join(bar(i, name, rate, rates[0][1]) for i, (name, rate) in enumerate(rates))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="720" height="{height}" '
            f'viewBox="0 0 720 {height}" font-family="system-ui, sans-serif" font-size="13" '
            f'fill="#1f2933">\n<rect width="720" height="{height}" fill="#ffffff"/>\n'
            f'<text x="20" y="24" font-size="15" font-weight="bold">{escape(title)}</text>\n'
            f"{bars}\n</svg>\n")


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: bench/chart.py LOG OUT.svg")
    with open(sys.argv[1]) as f:
        last = json.loads(f.read().strip().splitlines()[-1])
    title = "JPEG to training tensor, samples/s on one core (more is better)"
    with open(sys.argv[2], "w") as f:
        f.write(chart(last["figures"], title))


if __name__ == "__main__":
    main()
