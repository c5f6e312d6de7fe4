"""Draws what an epoch reads from storage under several cache policies, simulated by
bench_policies (bench/policies.c), and prints it as a table.

    .venv/bin/python bench/policies.py docs/results/policies.svg

A panel is a way to train: one order, two jobs with seeds of their own, samplers that
repeat. Its curves are over the share of the dataset that the cache holds.
"""

import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.environ.get("BUILD", os.path.join(ROOT, "build"))
PANELS = {
    "one order": [],
    "two orders": ["jobs=2"],
    "four orders": ["jobs=4"],
    "drawn with replacement": ["sampler=uniform", "known=3"],
    "classes balanced": ["sampler=balanced", "known=3"],
    "each sample three times": ["sampler=repeated", "known=5"],
    "validation every 2 epochs": ["validation=4000", "every=2"],
}
SHARES = (20, 35, 50, 65, 80)
COLOURS = {"lru": "#c2410c", "page cache": "#d97706", "never evict": "#6b7280",
           "lobster": "#7c3aed", "nopfs": "#2563eb", "ours": "#0b6e4f", "belady": "#111827"}
DRAWN = ("lru", "page cache", "never evict", "nopfs", "ours", "belady")
WIDTH, HEIGHT, GAP, LEFT, TOP, COLUMNS = 230, 150, 50, 44, 62, 4


def simulate(arguments):
    done = subprocess.run([os.path.join(BUILD, "bench", "bench_policies"), *arguments],
                          check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])["policies"]


def panel(number, title, results):
    """Draws the curves of one panel; results: by share, by policy."""
    x0 = LEFT + number % COLUMNS * (WIDTH + GAP)
    y0 = TOP + number // COLUMNS * (HEIGHT + GAP + 20)
    most = max(result[name]["alone"] for result in results.values() for name in DRAWN)
    parts = [f'<text x="{x0}" y="{y0 - 8}" font-weight="bold">{title}</text>',
             f'<rect x="{x0}" y="{y0}" width="{WIDTH}" height="{HEIGHT}" fill="none" '
             'stroke="#d1d5db"/>',
             f'<text x="{x0 - 6}" y="{y0 + 10}" text-anchor="end">{most:.2f}</text>',
             f'<text x="{x0 - 6}" y="{y0 + HEIGHT}" text-anchor="end">0</text>']

    def x_of(share):
        return x0 + WIDTH * (share - SHARES[0]) / (SHARES[-1] - SHARES[0])

    parts += [f'<text x="{x_of(s):.1f}" y="{y0 + HEIGHT + 14}" text-anchor="middle">{s} %</text>'
              for s in SHARES]
    for name in DRAWN:
        points = " ".join(f"{x_of(s):.1f},{y0 + HEIGHT * (1 - r[name]['alone'] / most):.1f}"
                          for s, r in results.items())
        width = 2.5 if name == "ours" else 1.5
        dashes = ' stroke-dasharray="4 3"' if name == "belady" else ""
        parts.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[name]}" '
                     f'stroke-width="{width}"{dashes}/>')
    return "".join(parts)


def picture(panels):
    rows = -(-len(panels) // COLUMNS)
    width, height = LEFT + COLUMNS * (WIDTH + GAP), TOP + rows * (HEIGHT + GAP + 20)
    legend = "".join(
        f'<rect x="{LEFT + 120 * i}" y="26" width="14" height="4" fill="{COLOURS[name]}"/>'
        f'<text x="{LEFT + 120 * i + 20}" y="32">{name}</text>' for i, name in enumerate(DRAWN))
    title = ("Bytes that an epoch of all jobs reads from storage, over the dataset's, by the share "
             "of the dataset in the cache (simulated; less is better)")
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">'
            f'<rect width="{width}" height="{height}" fill="white"/>'
            f'<text x="{LEFT}" y="16" font-size="13">{title}</text>{legend}'
            + "".join(panel(i, name, results) for i, (name, results) in enumerate(panels.items()))
            + "</svg>\n")


def main():
    panels = {name: {share: simulate([*arguments, f"share={share}"]) for share in SHARES}
              for name, arguments in PANELS.items()}
    with open(sys.argv[1], "w") as f:
        f.write(picture(panels))
    print("| cache of 50 % | " + " | ".join(COLOURS) + " |")
    print("|---" * (len(COLOURS) + 1) + "|")
    for name, results in panels.items():
        print(f"| {name} | " + " | ".join(f"{results[50][p]['alone']:.2f}" for p in COLOURS) + " |")


if __name__ == "__main__":
    main()
