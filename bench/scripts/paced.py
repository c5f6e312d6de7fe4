"""Shared by the scripts of bench/scripts.py, which do not know Headrace. Samples and steps sleep,
so the truth does not depend on how busy the machine is. Each script saves checkpoints and removes
older ones.

PACED_STEP_MS and PACED_SAMPLE_MS set the times, PACED_WORKERS the number of workers. With
PACED_BATCHES a script ends after so many steps and prints, as JSON, how long they took without the
first tenth: the truth run.
"""

import atexit
import json
import os
import time

import torch

STEP_S = float(os.environ.get("PACED_STEP_MS", "10")) / 1e3
SAMPLE_S = float(os.environ.get("PACED_SAMPLE_MS", "4")) / 1e3
WORKERS = int(os.environ.get("PACED_WORKERS", "1"))
BATCHES = int(os.environ.get("PACED_BATCHES", "0"))
BATCH = 4
COUNT = 4000
KEEP = 2  # checkpoints
EVERY = 10  # steps from one to the next

torch.set_num_threads(1)


def pause(seconds):
    """Sleeps. Does not call sleep for 0 ms, because that takes time too."""
    if seconds:
        time.sleep(seconds)


def prepare(index):
    """Returns a sample of 8 numbers after its time."""
    pause(SAMPLE_S)
    return torch.full((8,), float(index % 7))


class Points(torch.utils.data.Dataset):
    """A dataset that names no files."""

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        return prepare(index), index % 3


class Clock:
    """Counts steps. At the end of a truth run prints how long they took, and ends the script."""

    def __init__(self):
        self.steps = 0
        self.begun = 0.0

    def step(self):
        self.steps += 1
        if self.steps == BATCHES // 10:
            self.begun = time.perf_counter()
        if BATCHES and self.steps == BATCHES:
            seconds = time.perf_counter() - self.begun
            counted = BATCHES - BATCHES // 10
            print(json.dumps({"batches": counted, "seconds": seconds}), flush=True)
            atexit._run_exitfuncs()
            os._exit(0)


class Training:
    """A small network whose step sleeps, and its checkpoints."""

    def __init__(self, save=True):
        self.model = torch.nn.Linear(8, 3)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.clock = Clock()
        self.saves = save

    def step(self, x, y):
        pause(STEP_S)
        loss = torch.nn.functional.cross_entropy(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.done()

    def done(self):
        """Call after each step."""
        self.clock.step()
        if self.saves and self.clock.steps % EVERY == 0:
            save(self.model.state_dict(), self.clock.steps)


def save(state, number):
    """Saves a checkpoint as scripts do: writes it, renames it, removes the oldest."""
    os.makedirs("out", exist_ok=True)
    torch.save(state, "out/part")
    os.replace("out/part", f"out/checkpoint-{number:06}.pt")
    for name in sorted(n for n in os.listdir("out") if n.endswith(".pt"))[:-KEEP]:
        os.remove(os.path.join("out", name))
