"""Deaths, forks, signals, other users, and agents that start and end by themselves."""

import contextlib
import json
import os
import resource
import shutil
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import agent_job
import forked
import headrace
from agents import (
    LIMIT_S,
    Agent,
    Job,
    Process,
    Reader,
    Truth,
    indices,
    is_alive,
    same,
    taken,
    wait_until,
)
from conftest import COUNT, run_forked
from counted import segments
from headrace.torch import DataLoader
from test_processes import in_child

REPEAT = 10
LONG = REPEAT * COUNT


@pytest.fixture
def agent():
    with Agent() as running:
        yield running


def assert_nothing_is_left(pid, path):
    """Checks that the agent ends by itself some seconds after its last job, without leaving files.
    """
    wait_until(lambda: not is_alive(pid), "the idle agent's end")
    assert [p for p in os.listdir(os.path.dirname(path)) if p != "agent.lock"] == []
    assert segments() == []


# The agent's death


def test_a_killed_agent_with_a_path_is_an_error(dataset):
    truth = Truth(dataset, shuffle=True)
    with Agent() as agent:
        loader = DataLoader(
            dataset, 4, shuffle=True, return_index=True, agent=agent.socket, window=4
        )
        epoch = iter(loader)
        found = [next(epoch)]
        agent.kill()
        with pytest.raises(ConnectionResetError) as caught:
            while True:
                found.append(next(epoch))
        assert agent.socket in str(caught.value) and "state" in str(caught.value)
    truth.check(found, 0)
    state = loader.state_dict()
    assert (state["epoch"], state["position"]) == (0, 4 * len(found))
    with pytest.raises(OSError):
        list(loader)
    assert loader.state_dict() == state
    loader.close()
    again = DataLoader(dataset, 4, shuffle=True, return_index=True)
    again.load_state_dict(state)
    truth.check(taken(again), 0, state["position"])


def test_a_loader_goes_on_with_the_next_agent_at_its_path(dataset):
    """An agent that is started again at the same path serves the next iter() from the same
    position."""
    truth = Truth(dataset, shuffle=True)
    with Agent() as agent:
        loader = DataLoader(dataset, 4, shuffle=True, return_index=True, agent=agent.socket)
        taken(loader)
        epoch = iter(loader)
        found = [next(epoch)]
        agent.kill()
        with pytest.raises(ConnectionResetError):
            found += epoch
        with Agent(socket=agent.socket):
            rest = taken(loader)
            truth.check(rest, 1, COUNT - len(indices(rest)))
            assert len(indices(rest)) <= COUNT - 4
            truth.check(taken(loader), 2)
            loader.close()


def test_auto_goes_on_with_another_agent(dataset, default_socket):
    truth = Truth(dataset, shuffle=True)
    loader = DataLoader(dataset, 4, shuffle=True, return_index=True, agent="auto", stream="s")
    epoch = iter(loader)
    found = [next(epoch) for _ in range(3)]
    killed = headrace.agent_status()["pid"]
    os.kill(killed, signal.SIGKILL)
    found += epoch
    assert len(indices(found)) == COUNT
    truth.check(found, 0)
    truth.check(taken(loader), 1)
    assert loader.stats()["reattached"] == 1
    pid = headrace.agent_status()["pid"]
    assert pid != killed
    loader.close()
    assert_nothing_is_left(pid, default_socket)


@pytest.mark.long
def test_jobs_of_two_streams_go_on(folder, default_socket):
    """Four processes, two streams; the agent dies three times, each time after some batches."""
    data = agent_job.dataset(folder, REPEAT)
    truths = [Truth(data, shuffle=True, seed=seed) for seed in range(2)]
    options = {"agent": "auto", "batch_size": 4, "shuffle": True}
    more = {"repeat": REPEAT, "epochs": 2, "pace_s": 0.03}
    with contextlib.ExitStack() as stack:
        jobs = [
            stack.enter_context(
                Job(folder, {**options, "stream": f"s{i // 2}", "seed": i // 2}, **more)
            )
            for i in range(4)
        ]
        for job in jobs:
            assert job.next() == {"ready": True}
        for lines in (1, LONG):  # all begin; from then on none is held back
            for job in jobs:
                for _ in range(lines):
                    job.tell()
        readers = [Reader(Told(job), 2) for job in jobs]
        for _ in range(3):
            pid = wait_until(lambda: serving(jobs=4), "an agent with four jobs")
            before = [len(reader.batches) for reader in readers]
            wait_until(
                lambda: all(len(r.batches) > n + 5 for r, n in zip(readers, before)),
                "some batches for each job",
            )
            os.kill(pid, signal.SIGKILL)
        pid = wait_until(lambda: serving(jobs=4), "the last agent")
        digests = [{}, {}]  # batches by epoch and first sample, for each stream
        for i, (job, reader) in enumerate(zip(jobs, readers)):
            first = int(reader.batches[0][1][1])
            for epoch, batches in enumerate(reader.result(), first):
                assert {int(b[1]) for b in batches} == {epoch}
                assert indices(batches) == truths[i // 2].order(epoch)
                for digest, _, index in batches:
                    known = digests[i // 2].setdefault((epoch, int(index[0])), digest)
                    assert torch.equal(known, digest)
            assert job.next()["stats"]["reattached"] >= 3
    assert_nothing_is_left(pid, default_socket)


def serving(jobs):
    """Returns the pid of the agent if it serves `jobs` jobs now, else None."""
    with contextlib.suppress(OSError):
        status = headrace.agent_status()
        placed = [s for x in status["streams"] for queue in x["queues"] for s in queue["subscribers"]]
        return status["pid"] if len(placed) == jobs else None


class Told:
    """The batches that a job prints, in a loader's format: (digest, epoch, index) as tensors."""

    def __init__(self, job):
        self.job = job

    def __iter__(self):
        while "end" not in (b := self.job.next()):
            assert "index" in b, b
            digest = torch.tensor(list(bytes.fromhex(b["digest"])))
            yield digest, torch.tensor(b["epoch"]), torch.tensor(b["index"])


# Starting by itself


def test_racing_ranks_start_one_agent(folder, default_socket, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        """
import json, os, sys
import torch.distributed as dist
import headrace, headrace.transforms as T
from headrace.torch import DataLoader
dist.init_process_group("gloo")
data = headrace.ImageFolder(sys.argv[1], T.Compose([T.RandomResizedCrop(32), T.ToTensor()]))
dist.barrier()
loader = DataLoader(data, 4, shuffle=True, return_index=True, agent="auto", stream="ranks")
mine = [[i for *_, x in loader for i in x.tolist()] for _ in range(3)]
pid = headrace.agent_status()["pid"]
everyone = [None] * 4
dist.all_gather_object(everyone, (mine, pid, loader.stats()["padded_samples"]))
loader.close()
if dist.get_rank() == 0:
    print(json.dumps(everyone))
dist.destroy_process_group()
"""
    )
    ranks = forked.run_ranks(4, [sys.executable, str(script), str(folder)])
    assert [rank.returncode for rank in ranks] == [0] * 4, [rank.stderr for rank in ranks]
    everyone = json.loads(ranks[0].stdout.strip().splitlines()[-1])
    assert len({pid for _, pid, _ in everyone}) == 1
    for epoch in range(3):
        counts = [len(mine[epoch]) for mine, *_ in everyone]
        assert counts == [10] * 4
        assert {i for mine, *_ in everyone for i in mine[epoch]} == set(range(COUNT))
    assert sum(padded for *_, padded in everyone) == 3
    assert_nothing_is_left(everyone[0][1], default_socket)


def test_an_agent_of_ones_own_ends_when_unused(dataset, default_socket):
    plain = taken(DataLoader(dataset, 4))
    loaders = [DataLoader(dataset, 4, agent="auto") for _ in range(3)]
    for loader in loaders:
        assert same(taken(loader), plain)
    pid = headrace.agent_status()["pid"]
    mode = os.stat(os.path.dirname(default_socket)).st_mode
    assert stat.S_IMODE(mode) == 0o700
    assert stat.S_IMODE(os.stat(default_socket).st_mode) & 0o077 == 0
    for loader in loaders:
        loader.close()
    assert_nothing_is_left(pid, default_socket)
    loader = DataLoader(dataset, 4, agent="auto")  # another one is started
    assert same(taken(loader), plain)
    assert headrace.agent_status()["pid"] != pid
    loader.close()


def test_an_agent_outlives_the_job_that_started_it(folder, dataset, default_socket):
    with Job(folder, {"agent": "auto", "batch_size": 4}) as starter:
        assert starter.next()
        assert len(starter.batches()) == -(-COUNT // 4)
        pid = headrace.agent_status()["pid"]
        loader = DataLoader(dataset, 4, agent="auto")
        epoch = iter(loader)
        next(epoch)
        starter.send(signal.SIGKILL)
        starter.status()
    assert len(list(epoch)) == -(-COUNT // 4) - 1
    assert is_alive(pid) and os.getpgid(pid) != os.getpgid(0)
    loader.close()
    assert_nothing_is_left(pid, default_socket)


def test_ctrl_c_in_the_terminal_ends_jobs_only(folder, default_socket):
    """SIGINT to a job's whole process group does not reach the agent."""
    code = """
import sys, signal, os
sys.path[:0] = [sys.argv[1]]
import agent_job
loader = agent_job.DataLoader(agent_job.dataset(sys.argv[2]), 4, agent="auto")
next(iter(loader))
print(agent_job.headrace.agent_status()["pid"], flush=True)
signal.signal(signal.SIGINT, signal.SIG_IGN)
os.killpg(0, signal.SIGINT)
print(len(list(loader)), flush=True)
"""
    done = forked.run(
        [sys.executable, "-c", code, str(Path(__file__).parent), str(folder)],
        start_new_session=True,
    )
    assert done.returncode == 0, done.stderr
    pid, batches = map(int, done.stdout.split())
    assert batches == -(-COUNT // 4)
    assert_nothing_is_left(pid, default_socket)


def test_an_agent_that_cannot_start_is_an_error(dataset, default_socket, monkeypatch):
    monkeypatch.setenv("HEADRACE_AGENT_COMMAND", "/nowhere/headrace\x1fagent")
    with pytest.raises(FileNotFoundError, match="/nowhere/headrace"):
        DataLoader(dataset, 4, agent="auto")
    monkeypatch.setenv("HEADRACE_AGENT_COMMAND", "\x1f".join([sys.executable, "-c", "1 / 0"]))
    with pytest.raises(OSError, match="agent"):
        DataLoader(dataset, 4, agent="auto")


def test_auto_runs_nothing_of_the_working_directory(folder, default_socket, tmp_path, monkeypatch):
    """Modules of the same names beside the script, or left in a shared folder by another user."""
    marker = tmp_path / "ran"
    for name in ("typing", "json", "logging", "sitecustomize", "headrace"):
        (tmp_path / f"{name}.py").write_text(f"open({str(marker)!r}, 'a').write(__name__)\n1 / 0\n")
    monkeypatch.chdir(tmp_path)
    with Job(folder, {"agent": "auto", "batch_size": 4}) as job:
        assert job.next() == {"ready": True}
        pid = headrace.agent_status()["pid"]
        assert os.readlink(f"/proc/{pid}/cwd") == "/"
        assert len(job.batches()) == -(-COUNT // 4)
    assert not marker.exists(), marker.read_text()


def test_auto_starts_the_package_that_the_job_has(folder, default_socket, tmp_path):
    """Also if only the script's sys.path contains it, in a folder with other things."""
    copy = tmp_path / "checkout"
    package = Path(headrace.__file__).parent
    for part in (package, package.with_name("headrace.libs")):  # the libraries of a wheel
        if part.exists():
            shutil.copytree(part, copy / part.name)
    (copy / "json.py").write_text("1 / 0\n")
    code = f"""
import json, sys
sys.path[:0] = [{str(copy)!r}, {str(Path(__file__).parent)!r}]
import agent_job
assert agent_job.headrace.__file__.startswith({str(copy)!r})
loader = agent_job.DataLoader(agent_job.dataset({str(folder)!r}), 4, agent="auto")
print(len(list(loader)), agent_job.headrace.agent_status()["pid"], flush=True)
sys.stdin.read()
"""
    with Process([sys.executable, "-P", "-c", code]) as job:
        line = job.line()
        assert line, job.said()
        batches, pid = map(int, line.split())
        assert batches == -(-COUNT // 4)
        maps = Path(f"/proc/{pid}/maps").read_text()
        assert f"{copy}/headrace/_core" in maps


def test_a_relative_path_names_the_same_agent_everywhere(folder, dataset, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADRACE_AGENT", "run/agent.sock")
    loader = DataLoader(dataset, 4, agent="auto")
    assert len(taken(loader)) == -(-COUNT // 4)
    status = headrace.agent_status()
    assert status["socket"] == str(tmp_path / "run" / "agent.sock")
    loader.close()
    os.kill(status["pid"], signal.SIGKILL)


def test_what_the_first_job_was_given_is_not_for_the_agent(folder, default_socket):
    """Cores, priority, limits and umask of the job that happened to be first."""
    cores = os.sched_getaffinity(0)

    def confine():
        os.sched_setaffinity(0, {min(cores)})
        os.nice(5)
        os.umask(0o077)
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))

    code = f"""
import sys
sys.path[:0] = [{str(Path(__file__).parent)!r}]
import agent_job
loader = agent_job.DataLoader(agent_job.dataset({str(folder)!r}), 4, agent="auto")
print(agent_job.headrace.agent_status()["pid"], flush=True)
sys.stdin.read()
"""
    job = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE,
                           stdout=subprocess.PIPE, preexec_fn=confine)
    with job:
        pid = int(job.stdout.readline())
        assert os.sched_getaffinity(pid) == cores
        soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        assert soft == hard
        status = Path(f"/proc/{pid}/status").read_text()
        assert "Umask:\t0022" in status
        lowest = 20 - resource.getrlimit(resource.RLIMIT_NICE)[1]
        can_raise = os.geteuid() == 0 or lowest <= 0
        assert os.getpriority(os.PRIO_PROCESS, pid) == (0 if can_raise else 5)
        job.stdin.close()


def test_an_agent_with_smaller_limits_is_logged(dataset, default_socket, monkeypatch, caplog):
    start = Path(headrace.__file__).with_name("_start.py")
    words = ["nice", "-n", "7", sys.executable, "-P", str(start), "headrace.agent"]
    monkeypatch.setenv("HEADRACE_AGENT_COMMAND", "\x1f".join(words))
    own = os.getpriority(os.PRIO_PROCESS, 0)
    loader = DataLoader(dataset, 4, agent="auto")
    under = headrace.agent_status()["runs_under"]
    assert under["cores"] == len(os.sched_getaffinity(0))
    if under["nice"] > own:  # if its priority could be raised, it is 7
        (said,) = [m for m in caplog.messages if "runs under" in m]
        assert f"nice {under['nice']} (here {own})" in said and "--stop" in said
    loader.close()


# Other users and connections


@pytest.mark.skipif(os.getuid() != 0, reason="becoming another user needs root")
def test_another_user_is_refused(agent):
    def as_nobody():
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        return headrace.agent_status(agent.socket)

    assert in_child(as_nobody).startswith(("PermissionError", "FileNotFoundError"))

    def connect_anyway():
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as end:
            end.settimeout(LIMIT_S)
            end.connect(agent.socket)
            return [b"another user" in end.recv(1 << 16), end.recv(1 << 16)]

    try:
        os.chmod(agent.place, 0o777)  # opening the directory opens nothing
        os.chmod(agent.socket, 0o777)
        assert in_child(connect_anyway) == "[True, b'']"
    finally:
        os.chmod(agent.place, 0o700)
    assert (agent.look()["jobs"], agent.look()["refused"]) == (0, 1)


def test_noise_ends_that_connection_only(dataset, agent):
    loader = DataLoader(dataset, 4, agent=agent.socket)
    epoch = iter(loader)
    next(epoch)
    for noise in (b"", b"x", b"\0" * 64, os.urandom(200), b"GARH" * 3000):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as end:
            end.settimeout(LIMIT_S)
            end.connect(agent.socket)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                end.send(noise)
                end.shutdown(socket.SHUT_WR)
                while end.recv(1 << 16):
                    pass
    assert len(list(epoch)) == -(-COUNT // 4) - 1
    loader.close()


# Forks and signals


def test_a_forked_child_attaches_anew_and_the_parent_goes_on(dataset, agent):
    truth = Truth(dataset)
    truth.order(0)
    loader = DataLoader(dataset, 4, num_workers=2, return_index=True, agent=agent.socket)
    epoch = iter(loader)
    held = next(epoch)
    copy = held[0].clone()
    assert "fork" in in_child(lambda: next(epoch))

    def whole_epoch():
        out = [i for *_, x in loader for i in x.tolist()]
        loader.close()
        return out

    assert in_child(whole_epoch) == str(truth.order(0))
    assert in_child(loader.close) == "None"
    assert in_child(lambda: torch.equal(held[0], copy)) == "True"

    def spoil():
        held[0].zero_()
        return held[0].sum().item()

    assert in_child(spoil) == "0.0"
    assert torch.equal(held[0], copy)
    rest = list(epoch)
    truth.check([held, *rest], 0)
    loader.close()


def test_a_child_that_outlives_its_parents_loader(dataset, agent):
    """It has the connection's descriptors; the lease ends with the loader nevertheless."""
    loader = DataLoader(dataset, 4, agent=agent.socket, stream="forked", lag="wait")
    epoch = iter(loader)
    next(epoch)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(write)
        os.read(read, 1)
        os._exit(0)
    os.close(read)
    try:
        loader.close()
        wait_until(lambda: not agent.look()["streams"], "the end of the lease")
    finally:
        os.close(write)
        os.waitpid(pid, 0)


def test_ctrl_c_while_waiting_for_others(folder, agent):
    """A job waits for the next epoch of others, which do not begin it."""
    options = {"agent": agent.socket, "stream": "wait", "batch_size": 4, "lag": "wait"}
    code = """
import sys, json, threading, time
sys.path[:0] = [sys.argv[1]]
import agent_job
loader = agent_job.DataLoader(agent_job.dataset(sys.argv[2], 10), **json.loads(sys.argv[3]))
for waits in range(2):
    try:
        epoch = iter(loader)
        threading.Timer(0.3, lambda: print("waiting", flush=True)).start()
        next(epoch)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
sys.stdin.readline()
print(sum(len(labels) for _, labels in epoch))
"""
    with Job(folder, options, repeat=REPEAT, epochs=2, led=True) as other:
        assert other.next() and other.tell() is None
        other.batches(1)
        for _ in range(40):
            other.tell()
        other.batches(40)
        waiting = forked.Popen(
            [sys.executable, "-c", code, str(Path(__file__).parent), str(folder)]
            + [json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            for _ in range(2):
                assert waiting.stdout.readline() == "waiting\n"
                waiting.send_signal(signal.SIGINT)
                assert waiting.stdout.readline() == "interrupted\n"
            drain = Reader(Told(other), 2)
            for _ in range(2 * LONG // 4):
                other.tell()
            out, _ = waiting.communicate("go\n", timeout=600)
            assert out == f"{LONG}\n" and waiting.returncode == 0
            assert drain.error is None
        finally:
            waiting.kill()
            waiting.wait()
            waiting.stdout.close()


def test_ctrl_c_while_the_agent_is_waited_for(folder, agent):
    """An agent that takes long to open a dataset does not answer, like one that is stopped."""
    code = """
import sys, threading
import headrace, headrace.transforms as T
from headrace.torch import DataLoader
data = headrace.ImageFolder(sys.argv[1], T.Compose([T.RandomResizedCrop(32), T.ToTensor()]))
try:
    threading.Timer(0.3, lambda: print("waiting", flush=True)).start()
    next(iter(DataLoader(data, 4, agent=sys.argv[2])))
except KeyboardInterrupt:
    print("interrupted", flush=True)
sys.stdin.readline()
print(sum(len(labels) for _, labels in DataLoader(data, 4, agent=sys.argv[2])))
"""
    agent.process.send_signal(signal.SIGSTOP)
    waiting = forked.Popen(
        [sys.executable, "-c", code, str(folder), agent.socket],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert waiting.stdout.readline() == "waiting\n"
        waiting.send_signal(signal.SIGINT)
        assert waiting.stdout.readline() == "interrupted\n"
        agent.process.send_signal(signal.SIGCONT)
        out, _ = waiting.communicate("go\n", timeout=600)
        assert out == f"{COUNT}\n" and waiting.returncode == 0
    finally:
        agent.process.send_signal(signal.SIGCONT)
        waiting.kill()
        waiting.wait()
        waiting.stdout.close()


@pytest.mark.parametrize(
    "ending", ["sys.exit(0)", "kept = list(iter(loader))", "loader.self = headrace.kept = loader"]
)
def test_exit_with_a_live_loader(folder, agent, ending):
    code = """
import sys, headrace, headrace.transforms as T
from headrace.torch import DataLoader
data = headrace.ImageFolder(sys.argv[1], T.Compose([T.RandomResizedCrop(32), T.ToTensor()]))
loader = DataLoader(data, 4, agent=sys.argv[2])
live = iter(loader)
first = next(live)
print("done", flush=True)
"""
    done = run_forked(code + ending, str(folder), agent.socket)
    assert (done.stdout, done.stderr, done.returncode) == ("done\n", "", 0)
    wait_until(lambda: agent.look()["jobs"] == 0, "the end of its lease")
