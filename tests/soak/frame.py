"""What the soaks share: their options, and a run from a scratch folder to a line of JSON."""

import argparse
import datetime
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path


class Wrong(Exception):
    """What a soak has found."""


def photographs(data: Path) -> list[Path]:
    """The files of a folder of them, in order."""
    found = sorted(
        p for p in data.rglob("*") if p.suffix.lower() in (".jpg", ".jpeg") and p.is_file()
    )
    if not found:
        raise SystemExit(f"{data} has no photographs")
    return found


def parser(description: str) -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=description.split("\n\n")[0])
    options.add_argument("--build", type=Path, required=True)
    options.add_argument("--data", type=Path, required=True, help="a folder of photographs")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--out", type=Path, help="where the result goes, as JSON")
    return options


def commit() -> str | None:
    """The commit that is tested, as Git writes it short."""
    told = subprocess.run(["git", "-C", Path(__file__).parent, "describe", "--always", "--dirty"],
                          capture_output=True, text=True, check=False)
    return told.stdout.strip() or None


def whole(name: str, arguments: argparse.Namespace, make, figures) -> int:
    """Runs what ``make(arguments, scratch)`` gives (run, judge, close), prints and keeps what
    ``figures(soak, wrong)`` says of it; returns the exit status."""
    result = {"soak": name, "command": f"make soak-{name}", "commit": commit(),
              "date": datetime.date.today().isoformat(),
              "machine": f"{os.cpu_count()} cores, Linux {platform.release().split('-')[0]}"}
    begin = time.monotonic()
    # What ends it also ends what it started.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    with tempfile.TemporaryDirectory(prefix="headrace-soak-") as scratch:
        soak = make(arguments, Path(scratch))
        try:
            soak.run(arguments.jobs)
            soak.judge()
            wrong = None
        except (Wrong, subprocess.TimeoutExpired) as error:
            wrong = str(error)
        finally:
            soak.close()
    result |= {**figures(soak, wrong), "wrong": wrong,
               "seconds": round(time.monotonic() - begin, 1)}
    print(json.dumps(result))
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    return wrong is not None
