"""The frameworks' own example scripts, with the import of the loader changed and nothing else.

They are not part of this repository. HEADRACE_EXAMPLES names a folder with what was cloned there:

    timm/train.py                                    of huggingface/pytorch-image-models
    vision/references/classification/                of pytorch/vision
    accelerate/examples/                             of huggingface/accelerate
    lightning/examples/                              of Lightning-AI/pytorch-lightning

A script is skipped where it is absent. Its arguments make it short; what it would download is made
here. Each image has a class of its own, so that the targets of the loss tell the order.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from conftest import encode, synthetic

pytestmark = pytest.mark.long

EXAMPLES = os.environ.get("HEADRACE_EXAMPLES", "")
TOOLS = Path(__file__).parents[2] / "tools"
TRAIN, TEST = 24, 8  # images
EPOCHS = 3

# Runs a script, and notes the targets and the loss of each step of training.
RUN = """
import json, os, runpy, sys
import torch
import torch.nn.functional as functional
import torchvision_shim
torchvision_shim.prepare()

torch.set_num_threads(1)
torch.manual_seed(int(os.environ["SEED"]))
steps = []

def noting(function):
    def noted(output, target, *arguments, **options):
        loss = function(output, target, *arguments, **options)
        if torch.is_grad_enabled():
            steps.append((target.tolist(), loss.item()))
        return loss
    return noted

for name in ("cross_entropy", "nll_loss"):
    setattr(functional, name, noting(getattr(functional, name)))

# The destructor of gloo's group may wait for ever for a thread that waits for the interpreter: groups
# are kept until the process ends without one.
kept = []
from torch.nn.parallel import DistributedDataParallel as Parallel
begin_parallel = Parallel.__init__
# timm's script names a device, of which there are none for CPUs.
def begin(self, module, device_ids=None, **options):
    kept.append(self)
    begin_parallel(self, module, **options)
Parallel.__init__ = begin

def tell():
    with open(os.environ["NOTES"] + os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")), "w") as file:
        json.dump(steps, file)

sys.argv = sys.argv[1:]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
exec(os.environ.get("STAND_INS", ""))
runpy.run_path(sys.argv[0], run_name="__main__")
tell()
sys.stdout.flush()
os._exit(0)
"""


def with_our_loader(text: str) -> str:
    """Changes the import of the DataLoader."""
    changed = text.replace(
        "from timm.data import create_dataset, create_loader,",
        "from headrace.timm import create_loader\nfrom timm.data import create_dataset,",
    )
    changed = re.sub(
        r"^from torch\.utils\.data import DataLoader\b(?:, )?(.*)$",
        lambda found: "from headrace.torch import DataLoader"
        + (f"\nfrom torch.utils.data import {found[1]}" if found[1] else ""),
        changed,
        flags=re.MULTILINE,
    )
    if "torch.utils.data.DataLoader(" in changed:
        changed = "import headrace.torch\n" + changed.replace(
            "torch.utils.data.DataLoader(", "headrace.torch.DataLoader("
        )
    assert changed != text
    return changed


class Example:
    """A script of a framework, in a folder of its own for each run."""

    def __init__(self, place: Path, script: str, stand_ins: str = "") -> None:
        self.original = Path(EXAMPLES) / script
        if not EXAMPLES or not self.original.is_file():
            pytest.skip(f"HEADRACE_EXAMPLES has no {script}")
        self.place, self.stand_ins = place, stand_ins

    def run(self, name, *arguments, ours=True, ranks=1, seed=0):
        """Returns (targets, loss) of each step, for each rank."""
        folder = self.place / name
        if not folder.exists():
            shutil.copytree(self.original.parent, folder, ignore=shutil.ignore_patterns("*.log"))
        script = folder / self.original.name
        text = self.original.read_text()
        script.write_text(with_our_loader(text) if ours else text)
        run = folder / "run_noting.py"
        run.write_text(RUN)
        command = [sys.executable]
        if ranks > 1:
            command += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        notes = folder / "notes"
        environment = {
            **os.environ,
            "PYTHONPATH": str(TOOLS),
            "CUDA_VISIBLE_DEVICES": "",
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
            "NOTES": str(notes),
            "SEED": str(seed),
            "STAND_INS": self.stand_ins,
        }
        done = subprocess.run(
            [*command, str(run), str(script), *map(str, arguments)],
            cwd=folder, env=environment, capture_output=True, text=True, timeout=1200,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
        return [json.loads(Path(f"{notes}{rank}").read_text()) for rank in range(ranks)]


@pytest.fixture(scope="module")
def images(tmp_path_factory) -> Path:
    """train/ and val/ with a class for each image of train/."""
    root = tmp_path_factory.mktemp("images")
    for i in range(TRAIN):
        content = encode(synthetic(64 + i % 5, 70 - i % 7, i))
        for part in ("train", "val")[: 2 if i < TEST else 1]:
            (root / part / f"{i:03}").mkdir(parents=True)
            (root / part / f"{i:03}" / "a.jpg").write_bytes(content)
    return root


def epochs_of(told, epochs=EPOCHS):
    """Returns the steps of each epoch, of all ranks together."""
    assert len({len(steps) for steps in told}) == 1 and len(told[0]) % epochs == 0
    size = len(told[0]) // epochs
    return [
        [step for steps in told for step in steps[e * size : e * size + size]]
        for e in range(epochs)
    ]


def order_of(steps):
    return list(itertools.chain(*(targets for targets, _ in steps)))


def check_epochs(told, samples, epochs=EPOCHS, padding=0):
    """Every sample once, and epochs differ."""
    orders = [order_of(steps) for steps in epochs_of(told, epochs)]
    for order in orders:
        assert set(order) == set(samples) and len(order) <= len(set(samples)) + padding
    assert len({str(order) for order in orders}) == epochs


def check_losses(example, name, *arguments, seeds=2, epochs=EPOCHS):
    """The mean loss of each epoch is that with torch's loader, as far as seeds decide: the means of
    the seeds differ less than single seeds do, which is little."""
    curves = {True: [], False: []}
    for ours in curves:
        for seed in range(seeds):
            (steps,) = told = example.run(f"{name}-{ours}-{seed}", *arguments, ours=ours, seed=seed)
            assert steps
            curves[ours].append(
                [float(np.mean([loss for _, loss in epoch])) for epoch in epochs_of(told, epochs)]
            )
            if ours and not seed:
                yield told
    ours, theirs = torch.tensor(curves[True]), torch.tensor(curves[False])
    both = torch.cat([ours, theirs])
    spread = both.max(0).values - both.min(0).values
    assert bool(((theirs.mean(0) - ours.mean(0)).abs() <= spread).all()), both
    assert bool((spread < 0.15 * both.mean(0)).all()), both


def check_resumed(again, whole, done):
    """The rest of the run, sample by sample and with the same losses."""
    for rest, steps in zip(again, whole, strict=True):
        assert [targets for targets, _ in rest] == [targets for targets, _ in steps[done:]]
        assert [loss for _, loss in rest] == [loss for _, loss in steps[done:]]


def timms_arguments(images, tmp_path, *more):
    return [
        "--data-dir", images, "--model", "test_resnet", "--num-classes", TRAIN, "--device", "cpu",
        "--img-size", 32, "--batch-size", 4, "--epochs", EPOCHS, "--smoothing", 0, "--lr", 0.01,
        "--warmup-epochs", 0, "--cooldown-epochs", 0, "--workers", 1, "--drop-path", 0,
        "--checkpoint-hist", EPOCHS, "--output", tmp_path / "out", *more,
    ]  # fmt: skip


def test_timms_train_py(images, tmp_path, torchvision):
    pytest.importorskip("timm")
    example = Example(tmp_path, "timm/train.py")
    arguments = timms_arguments(images, tmp_path)
    for told in check_losses(example, "one", *arguments):
        check_epochs(told, range(TRAIN))
    example.run("mixup", *arguments, "--mixup", 0.2, "--cutmix", 1.0)  # its loss is not noted


@pytest.mark.parametrize(
    "more",
    [
        ["--aa", "rand-m9-mstd0.5-inc1", "--color-jitter", 0.3],
        ["--no-prefetcher", "--reprob", 0.25],
        ["--aug-repeats", 3],
    ],
    ids=["prefetcher", "no_prefetcher", "repeats"],
)
def test_timms_train_py_on_two_ranks(images, tmp_path, torchvision, more):
    pytest.importorskip("timm")
    example = Example(tmp_path, "timm/train.py")
    arguments = timms_arguments(images, tmp_path, *more)
    whole = example.run("whole", *arguments, "--experiment", "whole", ranks=2)
    if "--aug-repeats" not in more:
        check_epochs(whole, range(TRAIN))
    middle = ["--resume", tmp_path / "out" / "whole" / "checkpoint-0.pth.tar"]
    again = example.run("again", *arguments, *middle, "--experiment", "again", ranks=2)
    check_resumed(again, whole, len(whole[0]) // EPOCHS)


UNTRAINED = """
import torchvision.models
make = torchvision.models.get_model
torchvision.models.get_model = lambda name, weights: make(name)
"""


def test_torchvisions_classification_script(images, tmp_path, torchvision):
    """On one rank: its ranks need GPUs. test_frameworks_torchvision.py has its samplers and ranks."""
    example = Example(tmp_path, "vision/references/classification/train.py", UNTRAINED)

    def arguments(*more):
        return [
            "--data-path", images, "--model", "resnet18", "--device", "cpu", "--batch-size", 4,
            "--output-dir", "", "--epochs", EPOCHS, "--workers", 1, "--lr", 0.001,
            "--train-crop-size", 32, "--val-resize-size", 36, "--val-crop-size", 32, *more,
        ]  # fmt: skip

    for told in check_losses(example, "one", *arguments()):
        check_epochs(told, range(TRAIN))
    for name, more in (
        ("preset", ["--auto-augment", "ra", "--random-erase", 0.2, "--label-smoothing", 0.1]),
        ("v2", ["--use-v2", "--backend", "tensor", "--auto-augment", "ta_wide"]),
    ):
        check_epochs(example.run(name, *arguments(*more)), range(TRAIN))


NO_WEIGHTS = """
import timm
make = timm.create_model
timm.create_model = lambda name, pretrained, **options: make("test_resnet", **options)
"""


def test_accelerates_cv_example(tmp_path, torchvision):
    pytest.importorskip("accelerate")
    pytest.importorskip("timm")
    example = Example(tmp_path, "accelerate/examples/complete_cv_example.py", NO_WEIGHTS)
    pets = tmp_path / "pets"
    pets.mkdir()
    names = 200  # the script's batches have 64
    for i in range(names):
        (pets / f"pet{i:03}_1.jpg").write_bytes(encode(synthetic(40, 44, i)))
    steps, per_epoch = ["--checkpointing_steps", 1], 3
    for told in check_losses(example, "one", "--cpu", "--data_dir", pets):
        check_epochs(told, order_of(told[0][:per_epoch]))
        assert len(told[0]) == EPOCHS * per_epoch
        assert len(set(order_of(told[0]))) == names * 8 // 10
    whole = example.run("whole", "--cpu", "--data_dir", pets, *steps, "--output_dir", tmp_path)
    resume = ["--resume_from_checkpoint", tmp_path / "step_4"]
    again = example.run("again", "--cpu", "--data_dir", pets, *steps, *resume)
    check_resumed(again, whole, 4)
    stateful = [*steps, "--use_stateful_dataloader"]
    two = example.run("two", "--cpu", "--data_dir", pets, *stateful, "--output_dir", tmp_path / "two",
                      ranks=2)  # fmt: skip
    # Accelerate makes four whole batches of 64 of the three, by repeating samples
    check_epochs(two, order_of(whole[0][:per_epoch]), padding=96)


# A small network of the same kind, words for its tokens, and made pairs of sentences. Each pair has a
# label of its own.
NO_HUB = """
import random, types
import datasets, transformers, tokenizers
from tokenizers import models, pre_tokenizers
PAIRS = 64
words = [f"word{i}" for i in range(40)]
draw = random.Random(1)
def sentence():
    return " ".join(draw.choices(words, k=draw.randint(3, 9)))
def part(first):
    pairs = range(first, first + PAIRS)
    return datasets.Dataset.from_dict({
        "sentence1": [sentence() for _ in pairs], "sentence2": [sentence() for _ in pairs],
        "label": [i - first for i in pairs], "idx": list(pairs)})
both = datasets.DatasetDict({"train": part(0), "validation": part(1000)})
datasets.load_dataset = lambda *names: both
vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", *words])}
def tokenizer(name):
    made = tokenizers.Tokenizer(models.WordLevel(vocabulary, "[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]")
transformers.AutoTokenizer.from_pretrained = tokenizer
def network(name, **options):
    return transformers.BertForSequenceClassification(transformers.BertConfig(
        vocab_size=len(vocabulary), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, num_labels=PAIRS, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0))
transformers.AutoModelForSequenceClassification.from_pretrained = network
class Metric:
    def add_batch(self, predictions, references):
        self.count = getattr(self, "count", 0) + len(references)
    def compute(self):
        count, self.count = self.count, 0
        assert count == PAIRS, count  # of all ranks, without what was repeated
        return {"count": count}
sys.modules["evaluate"] = types.SimpleNamespace(load=lambda *names: Metric())
"""


def test_accelerates_nlp_example(tmp_path):
    pytest.importorskip("accelerate")
    pytest.importorskip("transformers")
    pytest.importorskip("datasets")
    example = Example(tmp_path, "accelerate/examples/nlp_example.py", NO_HUB)
    for told in check_losses(example, "one", "--cpu"):
        check_epochs(told, range(64))
    two = example.run("two", "--cpu", ranks=2)
    check_epochs(two, range(64))


def test_lightnings_imagenet_script(images, tmp_path, torchvision):
    pytest.importorskip("lightning")
    pytest.importorskip("docstring_parser", reason="pip install 'jsonargparse[signatures]'")
    pytest.importorskip("jsonargparse")
    example = Example(tmp_path, "lightning/examples/pytorch/domain_templates/imagenet.py")

    def arguments(*more):
        return [
            "fit", "--model.data_path", images, "--model.batch_size", 8, "--model.workers", 1,
            "--model.lr", 0.001, "--trainer.max_epochs", EPOCHS, "--trainer.accelerator", "cpu", *more,
        ]  # fmt: skip

    for told in check_losses(example, "one", *arguments()):
        check_epochs(told, range(TRAIN))


# torch's loader draws a number from the generator of dropout, ours does not.
NO_DROPOUT = "functional.dropout = lambda input, *arguments, **options: input"


def test_fabrics_image_classifier(tmp_path, torchvision):
    """The script does not shuffle: the losses are those with torch's loader to the last bit."""
    pytest.importorskip("lightning")
    pytest.importorskip("torchmetrics")
    script = "lightning/examples/fabric/image_classifier/train_fabric.py"
    example = Example(tmp_path / "a" / "b" / "c", script, NO_DROPOUT)
    write_digits(tmp_path / "a" / "Datasets" / "MNIST" / "raw")
    arguments = ["--epochs", 2, "--batch-size", 16]
    ours = example.run("ours", *arguments)
    assert ours == example.run("theirs", *arguments, ours=False) and len(ours[0]) == 2 * 6


def write_digits(folder):
    """MNIST's files, with made images."""
    folder.mkdir(parents=True)
    draw = np.random.default_rng(1)
    for part in ("train", "t10k"):
        pixels = draw.integers(0, 256, (96, 28, 28), np.uint8)
        labels = draw.integers(0, 10, 96, np.uint8)
        header = np.array([0x803, 96, 28, 28], ">i4").tobytes()
        (folder / f"{part}-images-idx3-ubyte").write_bytes(header + pixels.tobytes())
        header = np.array([0x801, 96], ">i4").tobytes()
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(header + labels.tobytes())
