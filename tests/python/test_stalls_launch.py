"""``python -m headrace.stalls``: what the launcher does with scripts and with the files that the
probe leaves, valid or not. Probe and torch are stand-ins, controlled by ``PROBE``: this file tests
processes, files and messages. test_stalls_scripts.py uses the real ones."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import headrace
import places
import pytest

PROBE = '''
"""Stands for the probe: DataLoader's iterator acts as the variable PROBE says."""
import json, os, sys, time

FOLDER = os.environ["HEADRACE_STALLS_DIR"]
MODE = os.environ.get("PROBE", "")


def leave(name, value):
    with open(os.path.join(FOLDER, name), "w") as file:
        file.write(value if isinstance(value, str) else json.dumps(value))


def record(ended):
    with open(os.environ["RECORD"]) as file:
        document = json.load(file)
    rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    document.update(ended=ended, rank=rank, world_size=size,
                    local_rank=rank, local_world_size=size)
    with open(os.path.join(FOLDER, "settings.json")) as file:
        document["run"] = json.load(file)["run"]
    return document


def act(iterator):
    rank = os.environ.get("RANK", "0")
    if MODE == "measure":
        leave(f"progress-{rank}.json", {"state": "measuring", "fraction": 0.5, "text": "round 1"})
        time.sleep(float(os.environ.get("TAKES", 0)))
        leave(f"rank-{rank}.json", record("precise"))
        sys.stdout.flush()
        os._exit(0)
    elif MODE == "device":
        with open(os.path.join(FOLDER, "settings.json")) as file:
            settings = json.load(file)
        if settings["device_replay"]:
            leave("problem-0.json", {"code": "device-replay", "text": "no device", "remedy": ""})
            raise SystemExit(5)
        leave("rank-0.json", record("limit"))
        os._exit(0)
    elif MODE == "internal":
        leave("problem-0.json", {"code": "internal", "text": "a bug", "remedy": "report this"})
        os._exit(70)
    elif MODE == "gives-up":
        leave("problem-0.json", {"code": "few-batches", "text": "too few", "remedy": "take more"})
        leave("gave-up-1", "")
        os._exit(70)
    elif MODE == "few":
        leave("problem-0.json", {"code": "few-batches", "text": "too few", "remedy": "take more"})
    elif MODE == "partial":
        leave("rank-0.json", record("script"))
    elif MODE == "damaged":
        leave("rank-0.json", "{")
    elif MODE == "interrupt":
        leave("progress-0.json", {"state": "measuring", "fraction": 0.25, "text": "round 1"})
        try:
            time.sleep(60)
        except KeyboardInterrupt:
            leave("rank-0.json", record("interrupted"))
            raise
    return iter(())


def attach(name, module):
    if MODE == "broken":
        raise RuntimeError("the probe is broken")
    if name == "torch.utils.data.dataloader":
        module.DataLoader.__iter__ = act
'''

STAND_INS = {
    "torch/__init__.py": "from . import utils\n",
    "torch/utils/__init__.py": "from . import data\n",
    "torch/utils/data/__init__.py": "from .dataloader import DataLoader\n",
    "torch/utils/data/dataloader.py": "class DataLoader:\n    def __iter__(self):\n        return iter(())\n",
}

LOOP = "from torch.utils.data import DataLoader\nfor _ in DataLoader(): pass\n"


def a_record() -> dict:
    """Returns a record of one rank: training takes 10 ms a batch of 8, preparation 2 ms more,
    fetching 3 ms more."""
    times = {"host": 0.010, "warm": 0.012, "cold": 0.015}
    segments, begin = [], 0.0
    for round_ in range(4):
        order = list(times) if round_ % 2 == 0 else list(times)[::-1]
        for phase in order:
            per_batch = times[phase] * (1 + 0.001 * round_)
            segments.append(
                {
                    "phase": phase,
                    "round": round_,
                    "set": round_,
                    "alone_rank": -1,
                    "batches": 10,
                    "samples": 80,
                    "begin_s": begin,
                    "elapsed_s": 10 * per_batch,
                    "process_cpu_s": 8 * per_batch,
                    "worker_cpu_s": 0.0,
                    "read_bytes": 80 * 1000 if phase == "cold" else 0,
                    "expected_bytes": 80 * 1000,
                    "verified": True,
                    "reason": "",
                    "wait_s": [per_batch - 0.010] * 10,
                    "batch_s": [per_batch] * 10,
                }
            )
            begin += 10 * per_batch + 0.01
    return {
        "headrace_stalls_record": 1,
        "run": "x",
        "rank": 0,
        "world_size": 1,
        "local_rank": 0,
        "local_world_size": 1,
        "host": "here",
        "command": ["python", "train.py"],
        "started": "2026-01-01T00:00:00Z",
        "ended": "precise",
        "machine": {
            "cores": 2,
            "cpu": "a CPU",
            "memory_bytes": 1 << 30,
            "available_bytes": 1 << 29,
            "device": None,
        },
        "loader": {
            "kind": "torch",
            "class": "torch.utils.data.dataloader.DataLoader",
            "workers": 1,
            "batches_ahead": 2,
            "batch_size": 8,
            "cache_bytes": 0,
        },
        "training": {"device": "cpu", "threads": 1, "warm_up_batches": 5},
        "dataset": {
            "name": "a folder",
            "samples": 1000,
            "bytes": 1000 * 1000,
            "sizes": [1000] * 50,
            "filesystem": "ext4",
        },
        "phases": {"device": "training on the CPU: there is no copy"},
        "segments": segments,
        "drains": [
            {
                "phase": "warm",
                "cores": 2,
                "samples": 4000,
                "elapsed_s": 1.0,
                "cpu_s": 1.0,
                "read_bytes": 0,
            }
        ],
        "preparation": [],
        "storage": {
            "depths": [{"depth": 1, "bytes_per_s": 1e6, "reads_per_s": 1000.0}],
            "memory_bytes_per_s": 1e9,
        },
        "headrace": None,
        "first_batch_s": 0.1,
        "notes": [],
        "files_written": [],
    }


@pytest.fixture(scope="session")
def site(tmp_path_factory) -> Path:
    """A folder with the package and the stand-ins."""
    root = tmp_path_factory.mktemp("site")
    package = Path(headrace.__file__).parent
    libraries = package.with_name("headrace.libs")  # of a wheel
    if libraries.exists():
        (root / libraries.name).symlink_to(libraries)
    for path in package.rglob("*"):
        target = root / "headrace" / path.relative_to(package)
        if path.is_dir():
            target.mkdir(parents=True, exist_ok=True)
        elif path.suffix != ".pyc":
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(path)
    (root / "headrace/stalls/probe.py").unlink()
    (root / "headrace/stalls/probe.py").write_text(PROBE)
    for name, text in STAND_INS.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "record.json").write_text(json.dumps(a_record()))
    return root


class Place(places.Place):
    """The launcher in a working directory, with a site of its own."""

    def __init__(self, site: Path, folder: Path) -> None:
        super().__init__(folder)
        self.site, self.folder = site, folder
        self.environment |= {"PYTHONPATH": str(site), "RECORD": str(site / "record.json")}

    def words(self, *words: str) -> list[str]:
        """Unguarded, because these scripts report their progress through files.
        test_stalls_guard.py tests the guard."""
        return [sys.executable, "-P", "-m", "headrace.stalls", "--unguarded", *words]

    def start(self, *words: str, probe: str = "", **more) -> subprocess.Popen:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **more}
        environment = {**self.environment, **pipes.pop("env", {}), "PROBE": probe}
        return subprocess.Popen(self.words(*words), cwd=self.work, env=environment, **pipes)

    def run(self, *words: str, probe: str = "", env=None) -> tuple[int, str, str]:
        """Measures train.py; returns (status, standard output, standard error)."""
        if "--" not in words:
            words = (*words, "--", sys.executable, "train.py")
        process = self.start(*words, probe=probe, env=env or {})
        out, err = process.communicate(timeout=600)
        self.check_clean()
        return process.returncode, out, err

    def check_clean(self) -> None:
        assert os.listdir(self.temporary) == []


@pytest.fixture
def place(site, tmp_path) -> Place:
    return Place(site, tmp_path)


def failed(err: str) -> list[str]:
    return [line for line in err.splitlines() if line.startswith("headrace stalls: ")]


# Scripts that cannot be measured


def test_a_script_without_loaders(place):
    place.script("print('done')")
    status, out, err = place.run()
    assert (status, out) == (1, "done\n")
    assert "the script imported no loader" in err and "headrace.watch" in err
    assert not (place.work / "headrace-stalls").exists()


def test_a_loader_that_is_never_read(place):
    place.script("import torch")
    status, _, err = place.run()
    assert status == 1
    assert err.startswith("headrace stalls: the script ended without reading a batch")


@pytest.mark.parametrize("flag", ["-I", "-E", "-S"])
def test_options_that_keep_the_probe_out(place, flag):
    place.script("pass")
    status, _, err = place.run("--", sys.executable, flag, "train.py")
    assert status == 1
    assert f"Python's option {flag} keeps it out; leave out {flag}" in err


def test_a_command_that_is_no_python(place):
    status, out, err = place.run("--", "echo", "hello")
    assert (status, out) == (1, "hello\n")
    assert "no Python process of the command loaded the probe" in err


def test_what_the_probe_says_is_passed_on(place):
    place.script(LOOP)
    assert place.run(probe="few") == (1, "", "headrace stalls: too few; take more\n")


def test_a_probe_that_gives_up_is_no_failure_of_the_script(place):
    place.script(LOOP)
    said = "headrace stalls: too few; take more\n"
    assert place.run(probe="gives-up") == (1, "", said)
    place.script("import os\nif 'HEADRACE_STALLS_DIR' not in os.environ: raise SystemExit(8)\n" + LOOP)
    status, _, err = place.run("--then-run", probe="gives-up")
    assert (status, err) == (8, said + "headrace stalls: running the command itself, without measuring\n")


def test_a_fault_of_the_probe(place):
    place.script(LOOP)
    status, _, err = place.run(probe="internal")
    assert (status, err) == (3, "headrace stalls: a bug; report this\n")


def test_a_probe_that_cannot_begin_leaves_the_script_alone(place):
    place.script(LOOP + "print('trained')")
    status, out, err = place.run(probe="broken")
    assert (status, out) == (1, "trained\n")
    assert "the probe does not work here: RuntimeError: the probe is broken" in err


def test_damaged_records(place):
    place.script(LOOP)
    status, _, err = place.run(probe="damaged")
    assert status == 3
    assert "rank-0.json is damaged" in err


# The script's own end


def test_its_own_exit_status_and_traceback(place):
    place.script(LOOP + "raise KeyError('mine')")
    status, _, err = place.run()
    assert status == 1
    assert "KeyError: 'mine'" in err and err.count("Traceback") == 1
    assert failed(err) == [
        "headrace stalls: the command itself failed before anything was measured, with exit "
        "status 1; there are no results"
    ]
    place.script(LOOP + "import sys; sys.exit(42)")
    assert place.run()[0] == 42
    place.script(LOOP + "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    status, _, err = place.run()
    assert status == 128 + 9
    assert "with exit status 137 (SIGKILL)" in err


def test_a_command_that_is_not_there(place):
    status, _, err = place.run("--", "no-such-command")
    assert (status, err) == (3, "headrace stalls: there is no command no-such-command on PATH\n")
    place.script("pass")
    status, _, err = place.run("--", "./train.py")
    assert status == 3
    assert err == "headrace stalls: ./train.py cannot be started: Permission denied\n"


def test_children_that_stay_are_named_and_left_alone(place):
    place.script(
        f"""
        import subprocess
        child = subprocess.Popen(["sleep", "7777"], start_new_session=True)
        while not open(f"/proc/{{child.pid}}/cmdline").read():
            pass  # within exec it has neither words nor an environment
        open({str(place.folder / "pid")!r}, "w").write(str(child.pid))
        child.returncode = 0  # not waited for
        """
    )
    log = open(place.folder / "err", "w+")
    process = place.start("--", sys.executable, "train.py", stdout=subprocess.DEVNULL, stderr=log)
    assert process.wait(600) == 1
    pid = int((place.folder / "pid").read_text())
    log.seek(0)
    try:
        assert f"but process {pid} has not: sleep 7777" in log.read()
        os.kill(pid, 0)
    finally:
        os.kill(pid, signal.SIGKILL)


# Interrupts


def wait_for(condition, seconds=600.0):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_an_interrupt_reaches_the_script_and_is_waited_for(place):
    place.script(
        """
        import time
        try:
            open("begun", "w").close()
            time.sleep(60)
        except KeyboardInterrupt:
            time.sleep(0.5)
            print("tidied up", flush=True)
            raise
        """
    )
    process = place.start("--", sys.executable, "train.py")
    wait_for((place.work / "begun").exists)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 130
    assert out == "tidied up\n"
    assert "KeyboardInterrupt" in err and "interrupted before anything was measured" in err
    place.check_clean()


def test_the_terminals_interrupt_reaches_the_script_once(place):
    place.script(
        """
        import signal, time
        seen = []
        signal.signal(signal.SIGINT, lambda *_: seen.append(1))
        print("ready", flush=True)
        while not seen:
            time.sleep(0.01)
        time.sleep(1)  # a second one would come now
        print("interrupts:", len(seen), flush=True)
        """
    )
    status, seen = on_terminal(place, "--", sys.executable, "train.py", keys={"ready": b"\x03"})
    assert status == 130
    assert "interrupts: 1" in seen


def test_the_second_interrupt_ends_a_script_that_does_not_mind_the_first(place):
    place.script(
        """
        import signal, time
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        open("begun", "w").close()
        time.sleep(60)
        """
    )
    process = place.start("--", sys.executable, "train.py")
    wait_for((place.work / "begun").exists)
    process.send_signal(signal.SIGINT)
    assert any("once more ends it" in line for line in process.stderr)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=600)
    assert process.returncode == 130


def test_a_request_to_end_reaches_the_script(place):
    place.script("open('begun', 'w').close()\nimport time\ntime.sleep(60)")
    process = place.start("--", sys.executable, "train.py")
    wait_for((place.work / "begun").exists)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=600)
    assert process.returncode == 128 + signal.SIGTERM
    assert "anything measured so far is lost" in err and "Ctrl-C" in err
    place.check_clean()


def test_a_child_that_is_there_longer_than_the_run(place):
    place.script(LOOP + "print('as ever')")
    environment = {
        **place.environment,
        "HEADRACE_STALLS_DIR": str(place.folder / "gone"),
        "PYTHONPATH": f"{place.site}/headrace/_launch/bootstrap{os.pathsep}{place.site}",
        "PROBE": "internal",
    }
    command = [sys.executable, "train.py"]
    found = subprocess.run(command, cwd=place.work, env=environment, capture_output=True, text=True)
    assert (found.returncode, found.stdout, found.stderr) == (0, "as ever\n", "")


def test_a_killed_launchers_folder_goes_with_the_next_start(place):
    place.script("open('begun', 'w').close()\nimport time\ntime.sleep(60)")
    process = place.start("--", sys.executable, "train.py")
    wait_for((place.work / "begun").exists)
    [name] = os.listdir(place.temporary)
    assert (place.temporary / name).stat().st_mode & 0o777 == 0o700
    process.kill()
    process.wait()
    place.script("pass", "other.py")
    # The script is still running, and its folder is there.
    second = place.start("--", sys.executable, "other.py")
    second.communicate(timeout=600)
    assert os.listdir(place.temporary) == [name]
    environments = subprocess.run(["pgrep", "-f", f"{sys.executable} train.py"], capture_output=True)
    mark = f"HEADRACE_STALLS_DIR={place.temporary / name}".encode()
    for pid in map(int, environments.stdout.split()):
        if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            os.kill(pid, signal.SIGKILL)
            wait_for(lambda pid=pid: not Path(f"/proc/{pid}/cmdline").exists()
                     or not Path(f"/proc/{pid}/cmdline").read_bytes())
    third = place.start("--", sys.executable, "other.py")
    third.communicate(timeout=600)
    place.check_clean()


# Options


@pytest.mark.parametrize(
    "words, text",
    [
        ([], "a command to measure is missing"),
        (["--batches", "0", "--", "true"], "--batches"),
        (["--precision", "2", "--", "true"], "--precision"),
        (["--channel", "here", "--", "true"], "--channel"),
        (["--data", "nowhere", "--", "true"], "no such directory"),
        (["--bathces", "1", "--", "true"], "--bathces"),
    ],
)
def test_wrong_options(place, words, text):
    process = place.start(*words)
    _, err = process.communicate(timeout=600)
    assert process.returncode == 2
    assert text in err and err.startswith("headrace stalls: ")


def test_settings_reach_the_probe(place):
    place.script(
        """
        import json, os
        folder = os.environ["HEADRACE_STALLS_DIR"]
        with open(os.path.join(folder, "settings.json")) as file:
            found = json.load(file)
        del found["run"]
        print(json.dumps(found))
        """
    )
    (place.work / "data").mkdir()
    _, out, _ = place.run()
    assert json.loads(out) == {
        "data": None,
        "batches": None,
        "time_s": 150.0,
        "precision": 0.02,
        "loader": None,
        "warm_up": None,
        "device_replay": True,
        "channel": None,
    }
    words = "--data data --batches 9 --time 5 --precision 0.1 --loader 2 --warm-up 3 --no-device"
    words += " --channel a:1"
    _, out, _ = place.run(*words.split())
    assert json.loads(out) == {
        "data": str(place.work / "data"),
        "batches": 9,
        "time_s": 5.0,
        "precision": 0.1,
        "loader": 2,
        "warm_up": 3,
        "device_replay": False,
        "channel": "a:1",
    }


def test_the_sitecustomize_it_hides_still_runs(place, tmp_path):
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text("import sys\nsys.mine = __file__\n")
    place.script("import sys, sitecustomize\nprint(sys.mine, sitecustomize.__file__)")
    path = f"{hidden}{os.pathsep}{place.site}"
    _, out, _ = place.run(env={"PYTHONPATH": path})
    assert out == f"{hidden}/sitecustomize.py {hidden}/sitecustomize.py\n"


def test_modules_look_as_ever(place):
    place.script(
        """
        import importlib.util, inspect, torch.utils.data.dataloader as m
        print(type(m.__loader__).__name__, type(m.__spec__.loader).__name__)
        print(inspect.getsource(m)[:16])
        """
    )
    _, out, _ = place.run()
    assert out == "SourceFileLoader SourceFileLoader\nclass DataLoader\n"


def test_a_launcher_of_ranks_is_not_measured():
    from headrace.stalls import hook

    assert hook.is_launcher(["python", "/usr/bin/torchrun", "train.py"])
    assert hook.is_launcher(["python", "-u", "-m", "torch.distributed.run", "train.py"])
    assert hook.is_launcher(["python", "-W", "ignore", "-um", "torch.distributed.launch"])
    assert not hook.is_launcher(["python", "train.py", "torchrun"])
    assert not hook.is_launcher(["python", "-c", "torchrun"])
    assert not hook.is_launcher(["python", "-m", "train"])
    assert not hook.is_launcher(["python"])


def on_terminal(place: Place, *words: str, probe: str = "", keys: dict[str, bytes] | None = None):
    """Runs on a terminal; returns (status, all output). ``keys`` are typed once a text has been
    shown."""
    keys = dict(keys or {})
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(place.work)
        command = place.words(*words)
        os.execve(command[0], command, {**place.environment, "PROBE": probe, "COLUMNS": "100"})
    seen = b""
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:
            break
        seen += piece
        for text in [text for text in keys if text.encode() in seen]:
            os.write(terminal, keys.pop(text))
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), seen.decode()


# Results


FILES = ["records", "report.html", "stalls.json", "trace.json"]


def test_results(place):
    place.script("print('script', flush=True)\n" + LOOP)
    status, out, err = place.run(probe="measure")
    assert (status, err) == (0, "")
    said = " ".join(out.split())
    assert said.startswith("script Training waits ") and "waits 33 % of the time" in said
    assert out.endswith("\nheadrace-stalls/: report.html, stalls.json, trace.json, records/\n")
    folder = place.work / "headrace-stalls"
    assert sorted(os.listdir(folder)) == FILES
    assert os.listdir(folder / "records") == ["rank-0.json"]


def test_results_take_the_place_of_earlier_ones_only(place):
    place.script(LOOP)
    for _ in range(2):
        assert place.run(probe="measure")[0] == 0
    assert sorted(p.name for p in place.work.glob("headrace*")) == ["headrace-stalls"]
    shutil.rmtree(place.work / "headrace-stalls")
    (place.work / "headrace-stalls").mkdir()
    (place.work / "headrace-stalls/mine").write_text("mine")
    assert place.run(probe="measure")[0] == 0
    assert os.listdir(place.work / "headrace-stalls") == ["mine"]
    assert sorted(os.listdir(place.work / "headrace-stalls-2")) == FILES


def test_records_that_do_not_suffice(place):
    record = a_record()
    record["segments"] = record["segments"][:1]
    (place.work / "record.json").write_text(json.dumps(record))
    place.script(LOOP)
    for _ in range(2):
        status, _, err = place.run(probe="measure", env={"RECORD": str(place.work / "record.json")})
        assert status == 1
        assert err.startswith("headrace stalls: no result: ")
        assert err.endswith("the measured records are in headrace-stalls/records\n")
    assert [p.name for p in place.work.glob("headrace*")] == ["headrace-stalls"]


def test_output_that_nobody_reads(place):
    place.script(LOOP)
    read, write = os.pipe()
    os.close(read)
    process = place.start("--", sys.executable, "train.py", probe="measure", stdout=write)
    os.close(write)
    _, err = process.communicate(timeout=600)
    assert process.returncode == 3
    assert err.startswith("headrace stalls: the result cannot be printed (")
    assert err.endswith("Broken pipe): see headrace-stalls\n")
    assert sorted(os.listdir(place.work / "headrace-stalls")) == FILES


def test_json_stands_alone(place):
    place.script("print('script')\nimport sys\nsys.stdout.flush()\n" + LOOP)
    status, out, err = place.run("--json", probe="measure")
    assert (status, err) == (0, "script\n")
    assert out == (place.work / "headrace-stalls/stalls.json").read_text()
    assert json.loads(out)


def test_again_without_the_device(place):
    place.script(LOOP)
    status, out, err = place.run(probe="device")
    assert status == 0
    assert "no device; starting again without that" in err
    assert place.run("--no-device", probe="device")[2] == ""


def test_then_run(place):
    place.script(
        "import os, sys\nprint(os.environ.get('HEADRACE_STALLS_DIR'), flush=True)\n"
        + LOOP
        + "sys.exit(7)"
    )
    status, out, err = place.run("--then-run", probe="measure")
    assert status == 7
    assert out.splitlines()[-1] == "None"
    assert err == "headrace stalls: running the command itself, without measuring\n"
    status, _, err = place.run("--then-run", probe="few")
    assert status == 7 and "now the command" not in err


def test_what_was_measured_until_the_script_ended(place):
    place.script(LOOP)
    status, out, err = place.run(probe="partial")
    assert status == 1
    assert "waits 33 % of the time" in " ".join(out.split())
    assert err == "headrace stalls: the script ended before the measurement was complete; these are the results so far\n"


def test_what_was_measured_until_an_interrupt(place):
    place.script(LOOP)
    status, seen = on_terminal(
        place, "--", sys.executable, "train.py", probe="interrupt", keys={"round 1": b"\x03"}
    )
    assert status == 130
    assert re.search(r"stalls \[#######-+\]  25%  round 1", seen)
    assert "waits 33 % of the" in " ".join(seen.split())
    assert sorted(os.listdir(place.work / "headrace-stalls")) == FILES


def test_a_rank_without_a_record(place):
    place.script(
        """
        import os, subprocess, sys
        if "RANK" in os.environ:
            from torch.utils.data import DataLoader
            if os.environ["RANK"] != "1":
                for _ in DataLoader(): pass
        else:
            ranks = [subprocess.Popen([sys.executable, "train.py"], env={**os.environ, "RANK": str(r), "WORLD_SIZE": "2"}) for r in range(2)]
            for rank in ranks: rank.wait()
        """
    )
    status, out, err = place.run(probe="measure")
    assert status == 1
    assert "1 of 2 ranks left no record" in err
