"""The guard of measuring runs: whatever scripts save, rotate and remove with their frameworks'
functions, their folders stay unchanged, and the scripts see their own changes.

Most scripts here run with the guard alone, without measuring; two are measured.
"""

from __future__ import annotations

import inspect
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from headrace._launch.folders import remove_folder
from headrace.stalls import guard

pytest.importorskip("torch")

TOOLS = str(Path(__file__).parents[2] / "tools")

PRELUDE = f"""
import os, sys
sys.path.insert(0, {TOOLS!r})
try:
    import torchvision_shim
    torchvision_shim.prepare()
except (ImportError, RuntimeError):
    pass
import torch
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
model = torch.nn.Linear(8, 3)
optimizer = torch.optim.SGD(model.parameters(), 0.01)

class Points(Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, index):
        return torch.full((8,), float(index)), index % 3
"""

TRANSFORMERS = """
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

class Sentences(Dataset):
    def __len__(self):
        return 100000
    def __getitem__(self, index):
        return {"input_ids": torch.arange(8), "labels": index % 2}

small = BertConfig(vocab_size=16, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
                   intermediate_size=8)
def trainer(steps):
    arguments = TrainingArguments("out", per_device_train_batch_size=2, max_steps=steps,
        save_steps=2, save_total_limit=2, report_to=[], disable_tqdm=True, use_cpu=True)
    return Trainer(BertForSequenceClassification(small), arguments, train_dataset=Sentences())
"""

SCRIPTS = {
    "trainer": TRANSFORMERS
    + """
trainer(6).train()
found = sorted(name for name in os.listdir("out") if name.startswith("checkpoint-"))
assert found == ["checkpoint-4", "checkpoint-6"], found
trainer(8).train(resume_from_checkpoint=True)
assert os.path.exists("out/checkpoint-8/model.safetensors")
""",
    "lightning": """
import lightning
from lightning.pytorch.callbacks import ModelCheckpoint

class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 3)
    def training_step(self, batch, index):
        loss = torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1])
        self.log("loss", -float(self.global_step))
        return loss
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)

saves = ModelCheckpoint("out", monitor="loss", save_top_k=2, save_last="link", every_n_train_steps=2)
trainer = lightning.Trainer(max_epochs=1, logger=False, callbacks=[saves], accelerator="cpu",
                            enable_progress_bar=False, enable_model_summary=False)
trainer.fit(Module(), DataLoader(Points(), 8))
assert len([name for name in os.listdir("out") if name.startswith("epoch")]) == 2
assert torch.load("out/last.ckpt", weights_only=False)["global_step"] == 8
""",
    "accelerate": """
import accelerate
from accelerate.utils import ProjectConfiguration

settings = ProjectConfiguration("out", automatic_checkpoint_naming=True, total_limit=2)
accelerator = accelerate.Accelerator(project_config=settings, cpu=True)
model, optimizer = accelerator.prepare(model, optimizer)
for _ in range(4):
    accelerator.save_state()
assert sorted(os.listdir("out/checkpoints")) == ["checkpoint_2", "checkpoint_3"]
accelerator.load_state()
""",
    "timm": """
import timm.utils

saver = timm.utils.CheckpointSaver(model, optimizer, checkpoint_dir="out", recovery_dir="out",
                                   max_history=2)
class Arguments:
    model = "small"
saver.args = Arguments()
for epoch in range(4):
    saver.save_checkpoint(epoch, metric=epoch)
names = os.listdir("out")
assert {"checkpoint-2.pth.tar", "checkpoint-3.pth.tar", "model_best.pth.tar"} <= set(names), names
assert "checkpoint-0.pth.tar" not in names
assert torch.load("out/last.pth.tar", weights_only=False)["epoch"] == 3
""",
    "torch": """
import io, shutil
import numpy as np

assert sorted(os.listdir("out")) == ["checkpoint-1", "checkpoint_0", "checkpoints", "model.pt"]
shutil.rmtree("out")
assert not os.path.exists("out")
os.makedirs("out/new")
torch.save(model.state_dict(), "out/model.pt")
with open("out/new/opened.pt", "wb") as file:
    torch.save(model.state_dict(), file)
memory = io.BytesIO()
torch.save(model.state_dict(), memory)
with open("out/part", "wb") as file:
    file.write(memory.getbuffer())
os.replace("out/part", "out/new/whole.pt")
np.save("out/array.npy", np.arange(5))
np.savez("out/arrays", a=np.arange(5))
shutil.copy2("log.txt", "out/log.txt")
with open("log.txt", "a") as file:
    file.write("more")
os.system("echo 1 > out/shell.txt; rm data/1; mv data/2 data/3; sed -i s/old/new/ data/4")
assert sorted(os.listdir("data")) == ["3", "4"] and open("data/4").read() == "new 4"
for name in ("model.pt", "new/opened.pt", "new/whole.pt"):
    model.load_state_dict(torch.load("out/" + name))
assert (np.load("out/array.npy", mmap_mode="r") == np.arange(5)).all()
assert sorted(os.listdir("out")) == ["array.npy", "arrays.npz", "log.txt", "model.pt", "new",
                                     "shell.txt"]
""",
    "safetensors": """
from safetensors.torch import load_file, save_file, save_model

save_file(model.state_dict(), "out/model.safetensors")
save_file(model.state_dict(), "out/model.safetensors")
save_model(model, "out/model.pt")
model.load_state_dict(load_file("out/model.safetensors"))
model.load_state_dict(load_file("out/model.pt"))
""",
    "workers": """
class Writing(Points):
    def __getitem__(self, index):
        with open(f"data/worker-{index}", "w") as file:
            file.write("x")
        return super().__getitem__(index)

assert sum(len(x) for x, _ in DataLoader(Writing(), 16, num_workers=2)) == 64
assert len(os.listdir("data")) == 64 + 3
""",
}

# Without torch, because importing it in each process takes long.
PROCESSES = """
import multiprocessing, os

def write(index):
    with open(f"data/process-{index}", "w") as file:
        file.write(str(index))

def main():
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            pool.map(write, range(4))
        assert len(os.listdir("data")) == 4 + 3
        for index in range(4):
            os.remove(f"data/process-{index}")

if __name__ == "__main__":
    main()
"""


def make_work(folder: Path) -> Path:
    """Makes earlier checkpoints with the frameworks' names, a log and some data."""
    work = folder / "work"
    for name in ("checkpoint-1", "checkpoints/checkpoint_0", "checkpoint_0"):
        (work / "out" / name).mkdir(parents=True)
        (work / "out" / name / "model.safetensors").write_text(f"old {name}")
    (work / "out/model.pt").write_text("old")
    (work / "log.txt").write_text("old")
    (work / "data").mkdir()
    for number in (1, 2, 4):
        (work / f"data/{number}").write_text(f"old {number}")
    return work


def contents(work: Path) -> dict[str, tuple]:
    """Returns everything in a folder: bytes, times and modes."""
    found = {}
    for path in sorted(work.rglob("*")):
        about = path.lstat()
        text = path.read_bytes() if path.is_file() else None
        found[str(path)] = (text, about.st_mtime_ns, about.st_ctime_ns, about.st_mode, about.st_ino)
    return found


def run_guarded(work: Path, script: Path, run_folder: Path, **variables: str):
    """Runs a script with the guard alone; returns the result and the guard."""
    run_folder.mkdir()
    guarded = guard.Guard(str(run_folder))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    guarded.add_to(environment)
    done = subprocess.run(
        [sys.executable, str(script)], cwd=work, env=environment, capture_output=True, text=True
    )
    return done, guarded


@pytest.mark.parametrize(
    "name",
    [
        name if name in ("torch", "workers", "accelerate") else pytest.param(name, marks=pytest.mark.long)
        for name in SCRIPTS
    ],
)
def test_saving(tmp_path, name):
    """A script saves, rotates, loads and removes; its folder is unchanged afterwards."""
    for module in {"trainer": ["transformers"], "timm": ["timm"]}.get(name, [name]):
        if name not in ("torch", "workers"):
            pytest.importorskip(module)
    work = make_work(tmp_path)
    script = tmp_path / "train.py"
    script.write_text(PRELUDE + SCRIPTS[name])
    if name == "accelerate":  # continues the numbers of existing checkpoints
        (work / "out/checkpoints/checkpoint_0/model.safetensors").unlink()
        (work / "out/checkpoints/checkpoint_0").rmdir()
    before = contents(work)
    done, guarded = run_guarded(work, script, tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert contents(work) == before
    away = guarded.redirected()
    assert "that the script wrote" in away.notes()[0]
    if name == "torch":
        assert str(work / "out/model.pt") in away.written
        assert str(work / "data/1") in away.deleted
        assert away.renamed == [str(work / "data/3")]


def test_processes(tmp_path):
    work = make_work(tmp_path)
    script = tmp_path / "train.py"
    script.write_text(PROCESSES)
    before = contents(work)
    done, guarded = run_guarded(work, script, tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert contents(work) == before and not guarded.redirected().written


@pytest.mark.long
def test_measured(tmp_path):
    """HF Trainer, measured: replayed weights are not saved, nothing is rotated away, and the result
    says so. Its files in the temporary folder are removed at the end."""
    pytest.importorskip("transformers")
    work = make_work(tmp_path)
    script = TRANSFORMERS + "import tempfile\ntempfile.mkdtemp()\ntrainer(100000).train()\n"
    (work / "train.py").write_text(PRELUDE + script)
    before = contents(work)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    (temporary / "mine").write_text("mine")
    words = ["--time", "2", "--out", str(tmp_path / "results"), "--", sys.executable, "train.py"]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "headrace.stalls", *words],
        cwd=work,
        env={**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert contents(work) == before
    assert os.listdir(temporary) == ["mine"]
    record = json.loads((tmp_path / "results/records/rank-0.json").read_text())
    assert any(path.endswith("model.safetensors") for path in record["files_written"])
    assert any("that the script wrote and" in note for note in record["notes"])
    assert "a measuring run is thrown" in done.stdout


def test_ranks(tmp_path):
    """Ranks that torchrun starts share the files they wrote."""
    work = make_work(tmp_path)
    script = tmp_path / "train.py"
    script.write_text(
        PRELUDE
        + textwrap.dedent(
            """
            import torch.distributed as distributed
            distributed.init_process_group("gloo")
            rank = distributed.get_rank()
            torch.save(model.state_dict(), f"out/rank-{rank}.pt")
            os.replace(f"out/rank-{rank}.pt", f"out/state-{rank}.pt")
            distributed.barrier()
            torch.load(f"out/state-{1 - rank}.pt")
            distributed.destroy_process_group()
            """
        )
    )
    start = tmp_path / "start.py"
    start.write_text(
        "import sys\nfrom torch.distributed.run import main\n"
        f"main(['--standalone', '--nproc-per-node', '2', {str(script)!r}])\n"
    )
    before = contents(work)
    done, guarded = run_guarded(work, start, tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert contents(work) == before
    assert {str(work / f"out/state-{rank}.pt") for rank in (0, 1)} <= set(
        guarded.redirected().written
    )


# Programs without preloading


def measure(work: Path, *words: str, **variables: str):
    return subprocess.run(
        [sys.executable, "-P", "-m", "headrace.stalls", "--out", str(work / "results"), *words],
        cwd=work,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
    )


def test_no_library(tmp_path):
    words = ["--", sys.executable, "-c", "open('made', 'w')"]
    done = measure(tmp_path, *words, HEADRACE_GUARD_LIBRARY=str(tmp_path / "none.so"))
    assert done.returncode == 3 and "--unguarded" in done.stderr
    assert os.listdir(tmp_path) == []
    done = measure(
        tmp_path, "--unguarded", *words, HEADRACE_GUARD_LIBRARY=str(tmp_path / "none.so")
    )
    assert done.returncode == 1 and (tmp_path / "made").exists()


def test_a_static_program(tmp_path):
    compiler = os.environ.get("CC", "cc")
    if shutil.which(compiler) is None:
        pytest.skip(f"no C compiler ({compiler})")
    source = tmp_path / "program.c"
    source.write_text("int main(void) { return 0; }\n")
    program = tmp_path / "program"
    made = subprocess.run([compiler, "-static", str(source), "-o", str(program)], check=False)
    if made.returncode:
        pytest.skip("no static C library")
    done = measure(tmp_path, "--", str(program))
    assert done.returncode == 3 and "linked statically" in done.stderr
    through = tmp_path / "script"
    through.write_text(f"#!{program}\n")
    through.chmod(0o755)
    done = measure(tmp_path, "--", str(through))
    assert done.returncode == 3 and "linked statically" in done.stderr
    # If a script starts one, a note says so.
    script = tmp_path / "train.py"
    script.write_text(f"import subprocess\nsubprocess.run([{str(program)!r}], env={{}})\n")
    _, guarded = run_guarded(tmp_path, script, tmp_path / "run")
    assert guarded.redirected().beyond == [str(program)]


def test_caches_among_work(tmp_path, monkeypatch):
    """A folder that contains the script's own folder is guarded, even if a variable names it as a
    cache."""
    work, caches = tmp_path / "work", tmp_path / "work/caches"
    caches.mkdir(parents=True)
    run_folder = tmp_path / "run"
    run_folder.mkdir()
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("TORCH_HOME", str(work))
    monkeypatch.setenv("MPLCONFIGDIR", str(caches))
    monkeypatch.setenv("XDG_CACHE_HOME", "/")
    monkeypatch.chdir(work)
    guard.Guard(str(run_folder))
    exempt = (run_folder / "guard/exempt").read_text().splitlines()
    assert str(caches) in exempt
    assert not {str(tmp_path), str(work), "/", "/run"} & set(exempt)


def test_a_killed_run_leaves_nothing(tmp_path):
    """The next start removes the files that it wrote, also those in the temporary folder."""
    temporary = tmp_path / "temporary"
    work = tmp_path / "work"
    temporary.mkdir()
    work.mkdir()
    (temporary / "was").write_text("was")
    (work / "log.txt").write_text("old")
    script = work / "train.py"
    script.write_text(
        "import os, tempfile, time\n"
        "open('log.txt', 'w').write('new')\n"
        "folder = tempfile.mkdtemp()\n"
        "open(os.path.join(folder, 'file'), 'w').write('1')\n"
        "os.remove(os.path.join(os.path.dirname(folder), 'was'))\n"
        "os.mkdir('shut', 0o500)\n"
        "print(os.getpid(), flush=True)\n"
        "time.sleep(60)\n"
    )
    words = [sys.executable, "-P", "-m", "headrace.stalls", "--out", str(tmp_path / "results"), "--"]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    process = subprocess.Popen(
        [*words, sys.executable, str(script)], cwd=work, env=environment, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    process.kill()
    os.kill(pid, signal.SIGKILL)
    process.communicate()
    made = [name for name in os.listdir(temporary) if name != "was"]
    assert len(made) == 2, "the run's folder, and the script's own"
    # Its parent has ended: another process collects it.
    until = time.monotonic() + 600
    while os.path.exists(f"/proc/{pid}") and Path(f"/proc/{pid}/cmdline").read_bytes():
        assert time.monotonic() < until
        time.sleep(0.01)
    subprocess.run([*words, "true"], cwd=work, env=environment, capture_output=True, check=False)
    assert os.listdir(temporary) == ["was"] and (temporary / "was").read_text() == "was"
    assert (work / "log.txt").read_text() == "old" and sorted(os.listdir(work)) == [
        "log.txt", "train.py",
    ]


def test_folders_without_the_right_to_change_them(tmp_path):
    """They are removed with the run's folder; the target of a link in it is not touched."""
    tmp_path.chmod(0o777)
    done = subprocess.run(
        [sys.executable, "-c", f"""
import contextlib, os, shutil
if os.geteuid() == 0:
    os.setuid(65534)
os.makedirs("outside")
os.chmod("outside", 0o500)
os.makedirs("folder/shut/below")
open("folder/shut/below/file", "w").close()
os.symlink("../../outside", "folder/shut/link")
os.chmod("folder/shut/below", 0)
os.chmod("folder/shut", 0o500)
exec({inspect.getsource(remove_folder)!r})
remove_folder("folder")
assert os.listdir(".") == ["outside"], os.listdir(".")
assert os.stat("outside").st_mode & 0o777 == 0o500
"""],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr


def test_a_python_that_was_not_preloaded(tmp_path):
    """It ends before the script begins."""
    words = ["--", "env", "-u", "LD_PRELOAD", sys.executable, "-c", "open('made', 'w')"]
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "settings.json").write_text("{}")
    bootstrap = Path(guard.__file__).parents[1] / "_launch/bootstrap"
    environment = {
        **os.environ,
        "PYTHONPATH": str(bootstrap),
        "HEADRACE_STALLS_DIR": str(folder),
        "HEADRACE_GUARD": str(folder / "guard"),
    }
    done = subprocess.run(words[1:], cwd=tmp_path, env=environment, check=False)
    assert done.returncode == 70 and not (tmp_path / "made").exists()
    problem = json.loads(next(folder.glob("problem-guard-*.json")).read_text())
    assert problem["code"] == "unguarded" and "--unguarded" in problem["remedy"]
