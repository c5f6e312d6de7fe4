"""make bench-scripts: are the statements of `headrace stalls` on real scripts true, and does it
leave their checkpoints alone?

The scripts of bench/scripts/ do not know Headrace. Each is measured once. Its true figures come
from plain runs: unchanged, without the time of samples and without that of steps, all before and
after the analysis; and with twice the workers. Steps and samples sleep, so the true figures depend
little on other load. A framework's own computations do depend on it: an idle core runs
Lightning's 2 ms of a step in 2.5, a busy one in 1.8, so the truth is a range. Accelerate's own test
scripts run unchanged.

A statement is false if its interval does not overlap the interval of the truth. A statement without
an interval has that of the table. Options: --minutes N, --only SCRIPT..., --table.
"""

import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

import harness
from harness import log

HERE = os.path.dirname(os.path.abspath(__file__))
TOOLS = os.path.join(os.path.dirname(HERE), "tools")
SCRIPTS = os.path.join(HERE, "scripts")
TIME_S = 20  # of an analysis
BATCHES = 150  # of a truth run
BATCH = 4  # samples per batch
OWN = 0.03  # tolerance for the script's own overheads, of a share or relative
WIDE = 0.20  # a statement with a wider interval does not count as knowledge
LIMIT_S = 240

# Name: (milliseconds of a step, of a sample, workers). None: a module of a package.
PACES = {
    "plain_files": (10, 5, 1),
    "short_epochs": (10, 2, 1),
    "prefetch_thread": (10, 5, 1),
    "iterable": (20, 4, 0),
    "transformers_trainer": (10, 5, 1),
    "lightning_fit": (10, 5, 1),
    "fabric_loop": (20, 8, 2),
    "accelerate_loop": (20, 2, 0),
    "timm_loader": (20, 8, 1),
    "webdataset_tar": (10, 6, 2),
    "hf_datasets": (20, 4, 0),
    "lmdb_rows": (10, 5, 1),
    "dali_pipeline": (20, 8, 1),
}
MODULES = {"accelerate_own": "accelerate.test_utils.scripts.test_sync"}
# The number of workers of torch's loader does not set that of their preparation.
NOT_BY_WORKERS = {"dali_pipeline", "prefetch_thread", "iterable", "accelerate_loop", "hf_datasets"}


class Script:
    """A script in a folder of its own."""

    def __init__(self, name, scratch):
        self.name, self.folder = name, os.path.join(scratch, name)
        self.step_ms, self.sample_ms, self.workers = PACES.get(name, (0, 0, 0))
        os.makedirs(os.path.join(self.folder, "files"))
        for number in range(1200):
            with open(os.path.join(self.folder, "files", f"{number:04}"), "wb") as file:
                file.write(bytes([number % 251]) * 2000)
        for old in ("checkpoint-1", "checkpoints/checkpoint_0"):
            os.makedirs(os.path.join(self.folder, "out", old))
            with open(os.path.join(self.folder, "out", old, "model.pt"), "w") as file:
                file.write(f"earlier {old}")
        for old in ("last.ckpt", "checkpoint-000001.pt", "checkpoint-000002.pt"):
            with open(os.path.join(self.folder, "out", old), "w") as file:
                file.write(f"earlier {old}")
        self.command = [sys.executable, "-W", "ignore"]
        if name in MODULES:
            self.command += ["-m", MODULES[name]]
        else:
            self.command += [os.path.join(SCRIPTS, f"{name}.py")]

    def environment(self, **changes):
        pace = {"step_ms": self.step_ms, "sample_ms": self.sample_ms, "workers": self.workers}
        pace.update(changes)
        paced = {f"PACED_{key.upper()}": str(value) for key, value in pace.items()}
        site = os.path.join(SCRIPTS, "site")
        return {**os.environ, **paced, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{site}:{TOOLS}",
                "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false",
                "HF_DATASETS_CACHE": os.path.join(self.folder, "cache")}

    def contents(self):
        """Returns the contents of the folder of checkpoints."""
        found = {}
        for folder, _, names in os.walk(os.path.join(self.folder, "out")):
            for name in ["", *names]:
                path = os.path.join(folder, name)
                about = os.lstat(path)
                text = ""
                if name:
                    with open(path, "rb") as file:
                        text = file.read()
                found[path] = (about.st_mtime_ns, about.st_size if name else 0, text)
        return found

    def truth(self, **changes):
        """Returns the batches per second of a plain run, in a copy of the folder, since it saves
        checkpoints."""
        copy = f"{self.folder}-plain"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.folder, copy)
        done = subprocess.run(self.command, cwd=copy, text=True, timeout=LIMIT_S,
                              env=self.environment(batches=BATCHES, **changes),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        said = [line for line in done.stdout.splitlines() if line.startswith('{"batches"')]
        if not said:
            raise harness.Missing(f"{self.name} did not run: {done.stderr.strip()[-200:]}")
        found = json.loads(said[0])
        return found["batches"] / found["seconds"]

    def analyse(self, time_s):
        """Measures the script. Returns the result (None: nothing was measured) and its output."""
        from headrace import stalls

        out = f"{self.folder}-result"
        done = subprocess.run(
            [sys.executable, "-P", "-m", "headrace.stalls", "--no-progress", "--time", str(time_s),
             "--out", out, "--", *self.command],
            cwd=self.folder, env=self.environment(), text=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=LIMIT_S, check=False)
        path = os.path.join(out, "stalls.json")
        return (stalls.read(path) if os.path.exists(path) else None), done.stdout


# ---- statements and the truth ------------------------------------------------


class Truth:
    """Rates of plain runs, in batches a second, each as (lowest, highest): unchanged, without the
    time of samples and without workers, without the time of steps, and with twice the workers
    (None: the workers do not matter).

    A plain run without samples' time still makes the samples: training alone is at least as fast,
    and at most as fast as its step sleeps. Likewise a loader without workers, whose plain run
    still trains."""

    def __init__(self, script):
        """Runs the script before the analysis."""
        self.script = script
        self.real = self.about(script.truth())
        self.device = self.about(self.train_only())
        self.prepare = self.about(script.truth(step_ms=0))
        by_workers = script.workers and script.name not in NOT_BY_WORKERS
        self.twice = self.about(script.truth(workers=2 * script.workers)) if by_workers else None

    def train_only(self):
        # No workers: starting them would count.
        return self.script.truth(sample_ms=0, workers=0)

    def conclude(self):
        """Runs the script again after the analysis, in case the machine's speed has changed."""
        script = self.script
        self.real = self.with_another(self.real, script.truth())
        self.device = self.with_another(self.device, self.train_only())
        self.prepare = self.with_another(self.prepare, script.truth(step_ms=0))
        drift = self.real[1] / self.real[0]
        if self.twice:
            self.twice = self.twice[0] / drift, self.twice[1] * drift
        self.device = self.device[0], max(self.device[1], 1e3 / script.step_ms)
        if not script.workers:
            self.prepare = self.prepare[0], max(self.prepare[1], 1e3 / (BATCH * script.sample_ms))

    @staticmethod
    def with_another(one, rate):
        return min(one[0], rate), max(one[1], rate)

    @staticmethod
    def about(rate):
        return rate, rate

    def share(self):
        """Returns the share of the time that is lost to preparation."""
        low = 1 - self.real[1] / self.device[0]
        high = 1 - self.real[0] / self.device[1]
        return max(0.0, min(low, high)), max(0.0, low, high)


def room(interval, truth, relative):
    """Returns whether an interval (value, low, high) overlaps the truth's (low, high), with a
    tolerance for the script's own overheads."""
    own = OWN * max(truth) if relative else OWN
    return interval[1] <= truth[1] + own and interval[2] >= truth[0] - own


def known(interval):
    return not any(math.isnan(value) for value in interval)


def statements(result, truth, batch):
    """Lists the statements of an analysis as (what, value, low, high, true), and whether each is
    false."""
    summary = result.summary()
    found = []

    def state(what, interval, true, relative=True):
        if known(interval):
            found.append((what, interval, true, not room(interval, true, relative)))

    samples = {key: tuple(batch * rate for rate in getattr(truth, key))
               for key in ("real", "device", "prepare")}
    start = start_of(result)
    warm = summary["rate"]["warm"]
    share = summary["warm_share"].get("preparation", (math.nan,) * 3)
    stepping = with_starts(warm, start)[0] / warm[0]  # of the time
    state("share", [1 - (1 - one) * stepping for one in share], truth.share(), False)
    state("G", summary["device_rate"], samples["device"])
    state("warm", with_starts(warm, start), samples["real"])
    state("P", with_starts(summary["prepare_rate"], start, first=batch), samples["prepare"])
    said = percentage(result.sentence)
    if said is not None:
        state("sentence", said, truth.share(), False)
    if truth.twice is not None:
        try:
            one = result.predict(workers=2 * workers_of(result))
        except (ValueError, OSError, NotImplementedError, RuntimeError):
            one = None
        if one is not None and not math.isnan(one["rate"]):
            twice = tuple(batch * rate for rate in truth.twice)
            rates = one["rate"], one["low"], one["high"]
            state("twice the workers", with_starts(rates, start), twice)
    return found


def document_of(result):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "stalls.json")
        result.write(path)
        with open(path) as file:
            return json.load(file)


def workers_of(result):
    return document_of(result)["loader"]["workers"]


def start_of(result):
    """Returns (samples of an epoch, seconds that its start waits), or None. An analysis reports
    the rates within an epoch and the wait at its start separately."""
    document = document_of(result)
    epoch = document.get("epoch") or {}
    if not epoch.get("each") or not epoch.get("start_s") or not epoch.get("batches"):
        return None
    return epoch["batches"] * document["loader"]["batch_size"], epoch["start_s"]


def with_starts(rates, start, first=0):
    """Converts rates within an epoch to rates of whole epochs. `first`: samples of the first
    batch, whose preparation is part of the wait at the start."""
    if start is None:
        return rates
    epoch, waiting = start
    return tuple(1 / (1 / rate + (waiting - first / rate) / epoch) if rate > 0 else rate
                 for rate in rates)


def percentage(sentence):
    """Parses the share of waiting time from the sentence: (value, low, high), or None. For short
    epochs the sentence states it for whole epochs."""
    whole = re.search(r"in all (\d+) %(?: \(give or take \d+\))? of its time is waiting", sentence)
    match = whole or re.search(r"waits (?:for data )?(\d+) % of the time", sentence)
    if match is None:
        return None
    off = re.search(r"give or take (\d+)", match[0] if whole else sentence)
    value, width = int(match[1]) / 100, int(off[1]) / 100 if off else 0.005
    return value, value - width, value + width


def knows(result):
    """Returns whether the analysis names what training waits for."""
    if result is None:
        return False
    value, low, high = result.summary()["warm_share"].get("preparation", (math.nan,) * 3)
    return not math.isnan(value) and (high - low) / 2 <= WIDE


# ---- the run ------------------------------------------------------------------


class Bench(harness.Parts):
    def __init__(self, args, scratch):
        super().__init__(args)
        self.scratch = scratch
        self.rows, self.false, self.changed = [], [], []

    def measure(self, name):
        script = Script(name, self.scratch)
        truth = Truth(script) if name in PACES else None
        before = script.contents()
        result, printed = script.analyse(self.args.time)
        if truth:
            truth.conclude()
        self.changed += [path for path in before | script.contents()
                         if before.get(path) != script.contents().get(path)]
        found = statements(result, truth, BATCH) if result is not None and truth else []
        wrong = [one for one in found if one[3]]
        self.false += [(name, *one) for one in wrong]
        self.rows.append((name, result, found, truth))
        said = result.sentence if result is not None else printed.strip().splitlines()[-1]
        log(f"{name}: {said}")
        for what, (value, low, high), true, is_false in found:
            log(f"    {what:<18} {value:9.4g} ({low:.4g} to {high:.4g}), true {true[0]:.4g} to "
                f"{true[1]:.4g}{'   FALSE' if is_false else ''}")

    def conclude(self):
        # A script without a result stated nothing, so it must not count as right.
        self.figures["ran"] = sum(result is not None for _, result, _, _ in self.rows)
        self.figures["without_result"] = len(self.rows) - self.figures["ran"]
        self.figures["false_statements"] = len(self.false)
        self.figures["checkpoints_changed"] = len(self.changed)
        self.figures["known_share"] = (
            sum(knows(result) for _, result, _, _ in self.rows) / len(self.rows)
            if self.rows else None)
        errors = [abs(value[0] / statistics.mean(true) - 1)
                  for _, _, found, _ in self.rows for what, value, true, _ in found
                  if what not in ("share", "sentence") and true[0]]
        if errors:
            self.figures["rate_error_median"] = statistics.median(errors)
        for path in self.changed:
            log(f"changed: {path}")
        if self.args.table:
            self.print_table()
        self.finish("scripts")

    def print_table(self):
        """Prints the table of docs/stalls.md."""
        log("\n| script | waits, said | true | G, P said (true) | false |\n|---|---|---|---|---|")
        for name, result, found, truth in self.rows:
            by = {what: (value, true) for what, value, true, _ in found}
            if "share" not in by:
                log(f"| {name} | nothing | | | 0 |")
                continue
            (value, low, high), true = by["share"]
            rates = ", ".join(f"{by[key][0][0]:.0f} ({statistics.mean(by[key][1]):.0f})"
                              if key in by else "-" for key in ("G", "P"))
            wrong = ", ".join(what for what, _, _, is_false in found if is_false) or "0"
            log(f"| {name} | {value:.0%} ({low:.0%} to {high:.0%}) | "
                f"{true[0]:.0%} to {true[1]:.0%} | {rates} | {wrong} |")


def main():
    names = [*PACES, *MODULES]
    options = harness.parser("scripts", __doc__, names, 15, data=SCRIPTS, data_help="not used")
    options.add_argument("--time", type=float, default=TIME_S, help="seconds of an analysis")
    options.add_argument("--table", action="store_true", help="print the table of docs/stalls.md")
    args = options.parse_args()
    log(f"{harness.machine()}; {harness.busy_note()}")
    # Not in the temporary folder, in which the guard does not redirect new files.
    place = os.path.join(os.environ.get("BUILD") or ".", "bench-scripts")
    os.makedirs(place, exist_ok=True)
    scratch = tempfile.mkdtemp(dir=os.path.abspath(place))
    try:
        bench = Bench(args, scratch)
        parts = {name: (lambda self, name=name: self.measure(name), [], 60) for name in names}
        bench.run(parts, (subprocess.TimeoutExpired,))
        bench.conclude()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
