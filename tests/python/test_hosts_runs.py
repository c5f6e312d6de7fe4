"""Runs on several hosts as users start them: torchrun, mpirun, the commands of docs/hosts.md."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import forked
from agents import LIMIT_S, Process, wait_until
from servers import Memcached, Servers, free_port

ROOT = Path(__file__).parents[2]
DOCS = (ROOT / "docs" / "hosts.md").read_text()
EXAMPLE = str(ROOT / "examples" / "train_hosts.py")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.fixture
def servers():
    with Servers(Memcached() for _ in range(2)) as running:
        yield running


def block(language: str, containing: str) -> str:
    """Returns the one code block of the docs in that language that contains this text."""
    found = [b for b in re.findall(rf"```{language}\n(.*?)```", DOCS, re.S) if containing in b]
    assert len(found) == 1, (language, containing)
    return found[0]


def run(command, **environment):
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env={**ENVIRONMENT, **environment},
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def lines_of_epochs(out: str) -> list[tuple[float, float, float]]:
    """Returns MB from storage, from the hosts' own servers and from others', for each epoch."""
    number = r"([\d.]+) MB from"
    pattern = rf"epoch \d+/\d+: .*?{number} storage, {number} the hosts' own.*?{number} each other"
    return [tuple(map(float, found)) for found in re.findall(pattern, out)]


def example(folder, servers, *more):
    return [EXAMPLE, "--data", str(folder), "--cache", servers.text(), "--batch-size", "5",
            "--workers", "1", *more]  # fmt: skip


def check_epochs(out: str, servers) -> None:
    first, second, third = lines_of_epochs(out)
    assert first[0] > 0 and second[0] == third[0] == 0, out
    assert third[1] > third[2], out
    for server in servers:
        assert f"{server.address}: " in out


def test_the_docs_run_on_one_machine(folder, servers):
    """The command of "Trying it on one machine", with these ports and this folder."""
    _, text = DOCS.split("### Trying it on one machine")
    command = "\n".join(
        line[4:] for line in text.split("##")[0].splitlines() if line.startswith("    ")
    )
    starts, command = command.split("torchrun", 1)
    assert starts.count("memcached -M -m 512 -I 8m -l 127.0.0.1 -p 1130") == 2
    for number, server in enumerate(servers, 1):
        command = command.replace(f"127.0.0.1:1130{number}", server.address)
    command = command.replace("size=384MiB'", "size=32MiB' --batch-size 5 --workers 1")
    command = command.replace("data/sample", str(folder))
    command = command.replace(" python examples", f" {sys.executable} examples")
    out = run(["bash", "-c", f"{sys.executable} -m torch.distributed.run{command}"])
    check_epochs(out, servers)


def test_mpirun(folder, servers):
    """As in the docs, but with both ranks on this machine; each says which host it is."""
    if shutil.which("mpirun") is None:
        pytest.skip("there is no mpirun")
    command = ["mpirun", "-n", "2", "--oversubscribe", "-x", "MASTER_ADDR=127.0.0.1"]
    command += ["-x", f"MASTER_PORT={free_port()}"]
    command += ["--allow-run-as-root"] if os.getuid() == 0 else []
    script = 'HEADRACE_HOST=$OMPI_COMM_WORLD_RANK exec "$@"'
    out = run([*command, "bash", "-c", script, "bash", sys.executable, *example(folder, servers)])
    check_epochs(out, servers)


def test_a_checkpoint_goes_on_with_another_number_of_ranks(folder, servers, tmp_path):
    keep = ["--checkpoint", str(tmp_path / "state")]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    host = ["--no-python", "bash", "-c", 'HEADRACE_HOST=$RANK exec "$@"', "bash", sys.executable]
    out = run([*command, "--nproc-per-node=2", *host,
               *example(folder, servers, *keep, "--stop-after", "2")])  # fmt: skip
    assert len(lines_of_epochs(out)) == 1 and "1/3" in out
    out = run([sys.executable, *example(folder, servers, *keep)], HEADRACE_HOST="0")
    assert [line[:9] for line in out.splitlines()[:3]] == ["epoch 1/3", "epoch 2/3", "epoch 3/3"]
    assert lines_of_epochs(out)[2][0] == 0


LONELY = """
import logging, sys
logging.basicConfig(level=logging.WARNING, stream=sys.stdout, format="%(message)s")
import headrace, headrace.transforms as T
from headrace.torch import DataLoader
data = headrace.ImageFolder(sys.argv[1], T.Compose([T.RandomResizedCrop(32), T.ToTensor()]))
loader = DataLoader(data, 4, cache=sys.argv[2], rank=0, world_size=2)
epoch = iter(loader)
print("waiting", flush=True)
try:
    next(epoch)
except KeyboardInterrupt:
    print("interrupted", flush=True)
loader.close()
print("closed", flush=True)
"""


def test_ctrl_c_while_ranks_are_missing(folder, servers):
    command = [sys.executable, "-c", LONELY, str(folder), servers.text(self=0)]
    with Process(command, forked.Popen) as rank:
        said = [rank.line(), rank.line()]
        assert "assignment='exact'" in said[0] and said[1] == "waiting"
        line = rank.line()  # while the loader waits
        assert line.startswith("before the first batch, rank 0 waits") and "rank 1" in line
        rank.send(signal.SIGINT)
        assert rank.line() == "interrupted"
        assert rank.line() == "closed" and rank.status() == 0


def test_a_rank_that_never_comes_is_named(folder, servers):
    code = LONELY.replace("KeyboardInterrupt:", "TimeoutError as error:\n    print(error)")
    done = run([sys.executable, "-c", code, str(folder), servers.text(self=0, meet="2s")])
    assert "rank 1" in done.splitlines()[-3] and "closed" in done


# Commands in the docs


def memcached_lines() -> list[list[str]]:
    """Returns the options of every line of the docs that starts a server for a list, except those
    with the memory and the address."""
    text = re.sub(r'"\$\(.*?\)"', "ADDRESS", DOCS)
    lines = re.findall(r"(?:/usr/bin/|^    |exec )memcached (-M [^\n']*)", text, re.M)
    args = re.search(r"args: \[(.*)\]", block("yaml", "DaemonSet")).group(1)
    lines.append(args.replace(",", " ").replace('"', ""))
    return [re.sub(r"-([mlp] \S+|d$)", "", line).split() for line in lines]


def test_every_memcached_line_of_the_docs():
    lines = memcached_lines()
    assert len(lines) == 6
    for options in set(map(tuple, lines)):
        with Memcached(options=options) as server:
            settings = server.stats("settings")
            assert settings["item_size_max"] == str(8 << 20), options
            assert settings["evictions"] == "off", options


def test_the_systemd_unit(tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze")
    unit = tmp_path / "headrace-memcached.service"
    unit.write_text(block("ini", "ExecStart"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--recursive-errors=no", str(unit)],
        capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    said = [line for line in done.stderr.splitlines() if "headrace" in line]
    assert done.returncode == 0 and said == [], done.stderr


def certificates(place: Path) -> None:
    """Makes an authority, and a certificate of it with its key in one file."""

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=place, check=True, capture_output=True)

    key = ["-nodes", "-newkey", "rsa:2048", "-subj"]
    openssl("req", "-x509", "-days", "2", *key, "/CN=authority", "-keyout", "ca.key", "-out", "ca.pem")
    openssl("req", *key, "/CN=host", "-keyout", "host.key", "-out", "host.csr")
    openssl("x509", "-req", "-in", "host.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-days", "2",
            "-CAcreateserial", "-out", "host.crt")  # fmt: skip
    (place / "host.pem").write_text(
        (place / "host.crt").read_text() + (place / "host.key").read_text()
    )
    (place / "host.pem").chmod(0o600)


def test_the_tls_sidecar(folder, tmp_path):
    """The docs' stunnel services of both machines in one process, on ports of the test."""
    stunnel = shutil.which("stunnel4") or shutil.which("stunnel")
    if stunnel is None or shutil.which("openssl") is None:
        pytest.skip("there is no stunnel, or no openssl")
    certificates(tmp_path)
    with Memcached() as own, Memcached() as far:
        port, tls = free_port(), free_port()
        text = block("ini", "verifyChain").replace("/etc/stunnel", str(tmp_path))
        for old, new in {
            "10.0.0.1:11212": f"127.0.0.1:{tls}",  # served by the other machine
            "127.0.1.1:11211": far.address,
            "127.0.1.2:11211": f"127.0.1.2:{port}",
            "10.0.0.2:11212": f"127.0.0.1:{tls}",
        }.items():
            assert text.count(old) == 1
            text = text.replace(old, new)
        config = tmp_path / "stunnel.conf"
        config.write_text("foreground = yes\npid =\nsyslog = no\n" + text)
        script = LONELY.replace("world_size=2", "world_size=1, num_workers=1").replace(
            "    next(epoch)\n",
            "    print(len(list(epoch)), len(list(loader)), flush=True)\n"
            "    print([(h['is_up'], h['stored'] > 0) for h in loader.hosts()], flush=True)\n",
        )
        hosts = f"memcached:{own.address},127.0.1.2:{port}?size=32MiB&self=0"
        with Process([stunnel, str(config)]) as sidecar:
            wait_until(lambda: "Configuration successful" in sidecar.said(), "stunnel")
            out = run([sys.executable, "-c", script, str(folder), hosts])
            assert "[(True, True), (True, True)]" in out, out + sidecar.said()
            assert far.items > 0 and own.items > 0


def test_the_slurm_script_says_the_right_list(tmp_path):
    """Stand-ins for Slurm's commands, which are not installed here, record their arguments."""
    stand_ins = {
        "scontrol": 'test "$*" = "show hostnames nodes[1-2]" && printf "node1\\nnode2\\n"',
        "srun": 'echo "srun: $*"',
    }
    for name, text in stand_ins.items():
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    out = run(
        ["bash", "-euc", block("bash", "SBATCH") + "\nwait"],
        PATH=f"{tmp_path}:{os.environ['PATH']}",
        SLURM_JOB_NODELIST="nodes[1-2]",
        SLURM_NNODES="2",
        SLURM_JOB_ID="77",
    )
    assert "--cache memcached:node1,node2?size=64GiB" in out
    assert "--nnodes=2" in out and "--rdzv-endpoint=node1:29500" in out and "--rdzv-id=77" in out
    assert "exec memcached -M -m 87040" in out


def test_the_pod_specification():
    yaml = pytest.importorskip("yaml")
    spec = yaml.safe_load(block("yaml", "DaemonSet"))["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    limit = int(container["resources"]["limits"]["memory"].removesuffix("Gi"))
    assert int(container["args"][2]) < limit * 1024
    (variable,) = yaml.safe_load(block("yaml", "HEADRACE_HOST"))["env"]
    assert variable["valueFrom"]["fieldRef"]["fieldPath"] == "status.hostIP"
