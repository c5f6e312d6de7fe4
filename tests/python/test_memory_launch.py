"""``python -m headrace.memory``, which ``headrace memory record`` executes: real scripts that are
recorded. test_memory_behaviour.py tests the contents of records; this file tests processes, files
and messages."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import places
import pytest
from headrace import _core, memory
from headrace.memory import arguments, records

pytest.importorskip("torch")

MODULES = "import os, signal, sys, time\n"
TRAINING = """
torch.set_num_threads(1)
torch.manual_seed(0)


class Training:
    def __init__(self):
        self.model = torch.nn.Sequential(
            torch.nn.Linear(20, 30), torch.nn.ReLU(), torch.nn.Linear(30, 4))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)

    def step(self, x=None):
        x = torch.randn(8, 20) if x is None else x
        loss = torch.nn.functional.cross_entropy(self.model(x), torch.arange(8) % 4)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


if __name__ == "__main__":
    training = Training()
"""


class Place(places.Place):
    """The launcher in a working directory."""

    common = MODULES + "import torch\n" + TRAINING

    def start(self, *words: str, command: list[str] | None = None) -> subprocess.Popen:
        command = command or [sys.executable, "train.py"]
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "headrace.memory", *words, "--", *command],
            cwd=self.work,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str, command: list[str] | None = None) -> tuple[int, str, str]:
        """Returns (status, standard output, standard error)."""
        process = self.start(*words, command=command)
        out, err = process.communicate(timeout=600)
        assert list(self.temporary.glob("headrace-*")) == []
        # The first run on a machine compiles the observer, or finds no compiler, and says so.
        return process.returncode, out, re.sub("^headrace: .*observer.*\n", "", err, flags=re.M)

    def records(self) -> list[str]:
        return sorted(name for name in os.listdir(self.work) if ".hrm" in name)

    def analyse(self, name: str = "headrace-memory.hrm") -> dict:
        return json.loads(_core.memory_analyse(str(self.work / name), 0.0, 0.0))


@pytest.fixture
def place(tmp_path) -> Place:
    return Place(tmp_path)


def wait_for(condition, seconds=600.0):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


# Files that a run leaves


def test_a_training(place):
    """So many iterations are recorded; training continues, with the same results as without
    recording."""
    place.script(
        """
        losses = [training.step() for _ in range(12)]
        print(losses, [p.double().sum().item() for p in training.model.parameters()])
        """
    )
    place.environment["HEADRACE_TEST_WHOLE_TORCH"] = "1"
    plain = subprocess.run(
        [sys.executable, "train.py"], cwd=place.work, env=place.environment, capture_output=True,
        text=True, timeout=600,
    )
    status, out, err = place.run("--iterations", "5", "--batch-size", "8", "--no-progress")
    assert (status, err) == (0, "")
    assert out.startswith(plain.stdout) and plain.stdout
    last = out.splitlines()[-1]
    found = re.fullmatch(r"headrace-memory\.hrm: 5 iterations, ([\d,]+) events, [\d.]+ KiB", last)
    assert found, last
    assert place.records() == ["headrace-memory.hrm"]
    analysis = place.analyse()
    assert analysis["run"]["ended"] and analysis["run"]["problem"] is None
    assert analysis["run"]["events"] == int(found[1].replace(",", ""))
    assert 5 <= analysis["pattern"]["marked"] <= 6
    assert analysis["run"]["facts"]["command"] == "train.py"
    assert analysis["run"]["facts"]["batch size"] == "8"
    # Weights, gradients and momentum of 20 x 30 + 30 + 30 x 4 + 4 numbers.
    peak = analysis["devices"][0]["peak"]
    weights = 4 * (20 * 30 + 30 + 30 * 4 + 4)
    assert peak["parameter"] == peak["gradient"] == peak["optimizer state"] == weights


def test_two_ranks(place):
    """torchrun itself is not recorded; the new records replace those of an earlier run."""
    (place.work / "out").mkdir()
    for name in ("run.hrm", "run.rank7.hrm"):
        (place.work / "out" / name).write_bytes(b"HRMEMORY" + bytes(100))
    (place.work / "out/run.rank8.hrm").write_bytes(b"mine")
    place.script(
        """
        import torch.distributed
        torch.distributed.init_process_group("gloo")
        training.model = torch.nn.parallel.DistributedDataParallel(training.model)
        for _ in range(3):
            training.step()
        torch.distributed.destroy_process_group()
        """
    )
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [sys.executable, *torchrun, "train.py"]
    status, out, err = place.run("--out", "out/run.hrm", "--no-progress", command=command)
    assert status == 0, err
    assert sorted(os.listdir(place.work / "out")) == [
        "run.rank0.hrm", "run.rank1.hrm", "run.rank8.hrm",
    ]
    lines = out.splitlines()[-2:]
    for rank, line in enumerate(lines):
        assert re.fullmatch(rf"out/run\.rank{rank}\.hrm: 3 iterations, [\d,]+ events, .*", line)
        assert place.analyse(f"out/run.rank{rank}.hrm")["pattern"]["marked"] >= 3


SAMPLES = """
import torch


class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        return torch.full((20,), float(index)) * 0.01
"""


@pytest.mark.long
def test_loaders_with_workers(place):
    """Forked and spawned workers leave no files."""
    place.script("", "samples.py", SAMPLES)
    place.script(
        """
        def main():
            from samples import Samples

            for method in ("fork", "spawn"):
                loader = torch.utils.data.DataLoader(
                    Samples(), 8, num_workers=2, multiprocessing_context=method)
                for x in loader:
                    training.step(x)
            print("trained", [".hrm." in name for name in os.listdir(".")].count(True))


        if __name__ == "__main__":
            main()
        """
    )
    status, out, err = place.run("--no-progress")
    assert (status, err) == (0, "")
    assert out.startswith("trained 1\n")  # nor do their files accumulate meanwhile
    assert place.records() == ["headrace-memory.hrm"]
    assert out.splitlines()[-1].startswith("headrace-memory.hrm: 8 iterations, ")
    # A worker's batch is an input: this process did not allocate it.
    inputs = [b for b in place.analyse()["lifetimes"]["blocks"] if b["bytes"] == 8 * 20 * 4]
    assert "input" in {b["category"] for b in inputs}


def test_several_processes_that_train(place):
    """Without ranks they are numbered in the order of their start. Forked children are not
    recorded."""
    place.script(
        """
        for _ in range(2):
            training.step()
        child = os.fork()
        if child == 0:
            for _ in range(3):
                training.step()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        if len(sys.argv) == 1:
            import subprocess
            sys.exit(subprocess.call([sys.executable, "train.py", "again"]))
        """
    )
    status, out, err = place.run("--no-progress", "--out", "run.hrm")
    assert status == 0, err
    assert re.fullmatch(
        r"headrace memory: process \d+, \d+ trained, but was forked from a recorded process, so "
        r"it is in no record; start it with multiprocessing's method spawn\n", err)
    assert place.records() == ["run.process1.hrm", "run.process2.hrm"]
    commands = [place.analyse(name)["run"]["facts"]["command"] for name in place.records()]
    assert commands == ["train.py", "train.py again"]
    assert [line[:31] for line in out.splitlines()[-2:]] == [
        "run.process1.hrm: 2 iterations,", "run.process2.hrm: 2 iterations,",
    ]


def test_without_training(place):
    place.script("print(float(training.model(torch.ones(8, 20)).sum()) != 0)")
    status, out, err = place.run("--no-progress")
    assert status == 0
    assert "no process trained (no backward pass ran, no optimizer stepped): keeping the largest" in err
    assert out.startswith("True\n") and ": 0 iterations, " in out.splitlines()[-1]


def test_the_limit(place):
    place.script("print(all(training.step() < 9 for _ in range(150)))")
    status, out, err = place.run("--no-progress", "--iterations", "0", "--limit", "800KiB")
    assert (status, err) == (0, "")
    assert out.startswith("True\n")
    assert "; --limit was reached, so the recording stopped: " in out.splitlines()[-1]
    run = place.analyse()["run"]
    assert run["lost"] > 0 and run["bytes"] <= 800 << 10
    status, out, err = place.run("--no-progress", "--out", "none.hrm", "--limit", "100KiB")
    said = "headrace memory: nothing was recorded: --limit was reached\n"
    assert (status, out, err) == (1, "True\n", said)
    assert place.records() == ["headrace-memory.hrm"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
def test_a_full_disk(place):
    """Training continues, and its record has the events for which there was room."""
    small = place.work / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=800k", "tmpfs", str(small)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        place.script("print(all(training.step() < 9 for _ in range(150)))")
        out_file = str(small / "run.hrm")
        status, out, err = place.run("--no-progress", "--iterations", "0", "--out", out_file)
        assert (status, err) == (0, "")
        assert out.startswith("True\n")
        assert "; the disk was full, so the recording stopped: " in out.splitlines()[-1]
        run = place.analyse("small/run.hrm")["run"]
        assert run["lost"] > 0 and run["accesses"] > 0
        assert os.listdir(small) == ["run.hrm"]
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_on_a_terminal(place):
    """The bar shows how many iterations are recorded, and disappears."""
    place.script(
        """
        for _ in range(4):
            training.step()
        while not os.path.exists("end"):
            time.sleep(0.01)
        print("trained", flush=True)
        """
    )
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(place.work)
        words = [sys.executable, "-P", "-m", "headrace.memory", "--iterations", "3"]
        command = [*words, "--", sys.executable, "train.py"]
        os.execve(sys.executable, command, {**place.environment, "COLUMNS": "100"})
    seen = b""
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:
            break
        seen += piece
        if b"3 of 3 iterations recorded; training continues" in seen:
            (place.work / "end").touch()
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    text = seen.decode()
    assert "memory [------------------------------]   0%  waiting until training begins" in text
    assert f"memory [{'#' * 30}] 100%  3 of 3 iterations recorded; training continues" in text
    after = text.split("trained")[-1]
    assert after.splitlines()[-1].startswith("headrace-memory.hrm: 3 iterations, ")


def test_json_stands_alone(place):
    """The status is the script's own."""
    place.script("training.step()\nprint('mine', flush=True)\nsys.exit(3)")
    status, out, err = place.run("--json", "--no-progress")
    assert status == 3
    assert json.loads(out) == place.analyse()
    assert err.startswith("mine\nheadrace memory: headrace-memory.hrm: 1 iterations, ")


# Ends of scripts


def test_its_own_exception(place):
    place.script("training.step()\nraise KeyError('mine')")
    status, out, err = place.run("--no-progress")
    assert status == 1
    assert err.count("Traceback") == 1 and "KeyError: 'mine'" in err
    assert place.analyse()["run"]["ended"]


def test_it_is_killed(place):
    place.script("for _ in range(4): training.step()\nos.kill(os.getpid(), signal.SIGKILL)")
    status, out, err = place.run("--no-progress")
    assert status == 128 + 9
    assert re.search(r"4 iterations, .*; process \d+ was killed \(or left by os._exit\): the record "
                     r"ends there$", out)
    run = place.analyse()["run"]
    assert not run["ended"] and run["damage"] is None
    assert place.analyse()["pattern"]["marked"] >= 4


def test_interrupts(place):
    """The first reaches the script; the second ends a script that ignores the first."""
    place.script(
        """
        signal.signal(signal.SIGINT, lambda *_: open("asked", "w").close())
        training.step()
        open("begun", "w").close()
        while True:
            time.sleep(0.01)
        """
    )
    process = place.start("--no-progress")
    wait_for((place.work / "begun").exists)
    process.send_signal(signal.SIGINT)
    wait_for((place.work / "asked").exists)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 128 + signal.SIGTERM
    assert "interrupted; waiting for the script to end (once more ends it)" in err
    assert "1 iterations" in out.splitlines()[-1]
    place.script(
        """
        try:
            training.step()
            open("begun2", "w").close()
            time.sleep(60)
        except KeyboardInterrupt:
            training.step()
            print("tidied up", flush=True)
            raise
        """
    )
    process = place.start("--no-progress")
    wait_for((place.work / "begun2").exists)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 128 + signal.SIGINT
    assert out.startswith("tidied up\n") and "KeyboardInterrupt" in err
    assert "2 iterations" in out.splitlines()[-1]
    assert place.analyse()["run"]["ended"]


def test_the_launcher_is_killed(place):
    """The record stays at its place and can be read, and the next start names it."""
    place.script(
        """
        for _ in range(3):
            training.step()
        open("begun", "w").close()
        while not os.path.exists("end"):
            time.sleep(0.01)
        """
    )
    process = place.start("--no-progress")
    wait_for((place.work / "begun").exists)
    process.kill()
    process.wait(600)  # its pipes belong to the script, too, which is alive
    [name] = place.records()
    pid = int(re.fullmatch(r"headrace-memory\.hrm\.(\d+)", name)[1])
    assert place.analyse(name)["pattern"]["marked"] >= 3
    second = place.start("--no-progress", command=["true"])
    said = second.communicate(timeout=600)[1]
    assert f"process {pid} of an earlier run is still recording into {name}\n" in said
    (place.work / "end").touch()
    process.communicate(timeout=600)
    wait_for(lambda: not Path(f"/proc/{pid}/maps").exists())
    _, _, said = place.run("--no-progress", command=["true"])
    assert f"{name} was left by an earlier run that was killed; it is readable\n" in said
    assert place.analyse(name)["run"]["ended"]


# Nothing to record


def test_nothing_to_record(place):
    place.script("print('done')", common="")
    status, out, err = place.run("--no-progress")
    said = "headrace memory: nothing was recorded: the script never imported torch\n"
    assert (status, out, err) == (1, "done\n", said)
    assert place.run("--no-progress", command=["sh", "-c", "exit 7"])[0] == 7
    status, _, err = place.run("--no-progress", command=["echo"])
    assert status == 1 and "no Python process of the command loaded the recorder: it has to be started" in err
    status, _, err = place.run("--no-progress", command=[sys.executable, "-I", "train.py"])
    assert status == 1 and "Python's option -I keeps it out; leave out -I" in err
    said = "headrace memory: there is no command no-such-command on PATH\n"
    assert place.run(command=["no-such-command"]) == (3, "", said)
    assert place.records() == []


def test_a_place_that_cannot_take_it(place):
    place.script("print('never')", common="")
    (place.work / "letter").write_text("dear reader")
    (place.work / "folder").mkdir()
    for out, why in (
        ("letter", "exists and is not a memory record, so it is not replaced"),
        ("folder", "is a directory"),
        ("none/run.hrm", "No such file or directory"),
    ):
        said = f"headrace memory: no record can be written to {place.work / out}: {why}; "
        assert place.run("--out", out) == (3, "", said + "name another file with --out\n")
    assert (place.work / "letter").read_text() == "dear reader"


@pytest.mark.parametrize(
    "words, text",
    [
        (["--iterations", "-1", "--", "true"], "--iterations"),
        (["--limit", "4 apples", "--", "true"], "--limit: invalid size (4GiB) value"),
        (["--batch-size", "0", "--", "true"], "--batch-size"),
        (["--iteratoins", "1", "--", "true"], "--iteratoins"),
        ([], "a command to record is missing: headrace memory record -- python train.py"),
    ],
)
def test_wrong_options(words, text, capsys):
    with pytest.raises(SystemExit) as ended:
        arguments.parse(words)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("headrace memory record: ") and text in said


def test_sizes():
    parsed = [arguments.parse(["--limit", text, "x"]).limit for text in
              ("4GiB", "1.5kB", "500 MB", "12", "7B")]
    assert parsed == [4 << 30, 1500, 500_000_000, 12, 7]


def test_one_of_several_tasks(place):
    """srun starts several of us with the same arguments."""
    place.script("print('never')", common="")
    place.environment |= {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"}
    (place.work / "run.task1.hrm").write_text("mine")
    status, _, err = place.run("--out", "run.hrm")
    assert status == 3 and f"no record can be written to {place.work}/run.task1.hrm: " in err
    place.environment["SLURM_STEP_NUM_TASKS"] = "1"
    assert "never imported torch" in place.run("--out", "run.hrm")[2]


# Records as files


def a_record(path: Path, pid: int = 1, extents: tuple[tuple[int, int], ...] = ()) -> str:
    """The structure of a record: extents are (kind, bytes in use)."""
    head = struct.pack("<8sIIIIQQqQQQq", b"HRMEMORY", 1, 0x01020304, 4096, 262144, 0, 0, pid, 0, 5, 1, -28)
    with open(path, "wb") as file:
        file.write(head.ljust(4096, b"\0"))
        for kind, used in extents:
            extent = struct.pack("<8sIIQQQQ", b"HREXTENT", kind, 0, 0, used, 1, 0)
            file.write(extent.ljust(262144, b"\0"))
    return str(path)


def test_heads(tmp_path):
    path = a_record(tmp_path / "a", 77, ((1, 3200), (2, 640), (1, 32)))
    assert records.about(path) == records.About(77, 101, 4096 + 3 * 262144, 5, True, 28)
    os.truncate(path, 4096 + 262144 + 10)
    assert records.about(path).events == 100
    (tmp_path / "b").write_bytes(b"HRMEMORY")
    assert records.about(str(tmp_path / "b")) is None


def test_names(tmp_path):
    out = str(tmp_path / "run.hrm")

    def name(ranks):
        paths = [a_record(tmp_path / f"run.hrm.{at}", at) for at in range(len(ranks))]
        found = records.name_all(out, paths, ranks)
        assert [records.about(path).pid for path in found] == list(range(len(ranks)))
        return sorted(os.listdir(tmp_path))

    assert name([0, 1]) == ["run.rank0.hrm", "run.rank1.hrm"]
    assert name([3]) == ["run.hrm"]
    assert name([None, None]) == ["run.process1.hrm", "run.process2.hrm"]
    assert name([0, 0]) == ["run.process1.hrm", "run.process2.hrm"]
    (tmp_path / "run.process1.hrm").write_text("mine")
    with pytest.raises(FileExistsError, match="not a memory record"):
        name([None, None])
    assert (tmp_path / "run.process1.hrm").read_text() == "mine"


def test_left_over(tmp_path):
    out = str(tmp_path / "run.hrm")
    for name in ("run.hrm.12", "run.hrm.12-2", "run.hrm.12.txt", "other.hrm.12"):
        a_record(tmp_path / name)
    (tmp_path / "run.hrm.13").write_text("a letter")
    found = sorted(records.left_over(out))
    assert found == [(f"{out}.12", 0), (f"{out}.12-2", 0)]


# Using records in Python


def test_the_python_face(tmp_path):
    """Two raw timelines: converted, compared, written."""
    paths = []
    for number, size in enumerate((400, 900)):
        rows = [[-1, 1, 1000, 0], [10, 2, size, 4], [20, 2, 600, 5], [30, 4, -size, 4]]
        (tmp_path / f"{number}.json").write_text(json.dumps(rows))
        paths.append(tmp_path / f"{number}.hrm")
        memory.convert(tmp_path / f"{number}.json", paths[-1])
        assert memory.analyse(paths[-1])["devices"][0]["peak_bytes"] == 1600 + size
    assert memory.compare(*paths)["devices"][0]["peak_bytes"] == [2000, 2500]
    memory.write_text(paths, tmp_path / "text", columns=70)
    lines = (tmp_path / "text").read_text().splitlines()
    assert lines and max(map(len, lines)) <= 70
    memory.write_page(paths, tmp_path / "page.html")
    assert "<html" in (tmp_path / "page.html").read_text()
    (tmp_path / "letter").write_text("dear reader")
    with pytest.raises(ValueError, match="letter"):
        memory.convert(tmp_path / "letter", tmp_path / "a.hrm")
    (tmp_path / "trace.json").write_text('{"traceEvents": []}')
    with pytest.raises(ValueError, match="trace"):
        memory.convert(tmp_path / "trace.json", tmp_path / "a.hrm")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        memory.write_text([paths[0], tmp_path / "nowhere"], tmp_path / "text")
    with pytest.raises(FileNotFoundError, match="none"):
        memory.write_page(paths, tmp_path / "none/page.html")
    with pytest.raises(TypeError, match="sequence of paths"):
        memory.write_text(str(paths[0]))
