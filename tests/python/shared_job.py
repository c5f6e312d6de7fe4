"""A training script for tests of datasets that jobs share: prints each batch as a line of JSON.

Its argument is JSON: folder (where each made sample is noted), count (of samples), options (of the
DataLoader), epochs, pace_s (duration of a step), made_s (duration of making a sample), led (give a
batch only for each line of stdin), state (to resume from), kind (of the dataset), bad (a sample
that raises), fatal (a sample whose process is killed), gate (a file without which no sample but
the first is made).
"""

import json
import os
import signal
import sys
import time

import torch
from torch.utils.data import Dataset

from headrace.torch import DataLoader


class Numbers(Dataset):
    """Samples whose values are drawn, and the label. Notes each sample that it makes."""

    def __init__(self, spec):
        self.spec = spec
        self.transform = spec.get("transform")

    def __len__(self):
        return self.spec["count"]

    def __getitem__(self, index):
        with open(os.path.join(self.spec["folder"], "made"), "a") as notes:
            notes.write(f"{os.getpid()} {index}\n")
        if index == self.spec.get("bad"):
            raise ValueError(f"bad {index}")
        if index == self.spec.get("fatal"):
            os.kill(os.getpid(), signal.SIGKILL)
        while index and "gate" in self.spec and not os.path.exists(self.spec["gate"]):
            time.sleep(0.01)
        time.sleep(self.spec.get("made_s", 0))
        side = self.spec.get("side", 8)
        return torch.full((3, side, side), float(index)) + torch.rand(()), index


class Others(Numbers):
    pass


def tell(**what):
    print(json.dumps(what), flush=True)


def main():
    spec = json.loads(sys.argv[1])
    dataset = {"numbers": Numbers, "others": Others}[spec.get("kind", "numbers")](spec)
    try:
        loader = DataLoader(dataset, return_index=True, **spec["options"])
        if spec.get("state"):
            loader.load_state_dict(spec["state"])
        tell(ready=True)
        for epoch in range(spec.get("epochs", 1)):
            if spec.get("led"):
                sys.stdin.readline()
            for images, labels, index in loader:
                tell(index=index.tolist(), labels=labels.tolist(), sums=images.sum((1, 2, 3)).tolist(),
                     state=loader.state_dict())
                time.sleep(spec.get("pace_s", 0))
                if spec.get("led"):
                    sys.stdin.readline()
            tell(end=epoch)
    except Exception as error:
        tell(error=type(error).__name__, message=str(error))
        return
    stats = loader.stats()
    tell(stats={name: stats[name] for name in ("samples", "missed", "alone", "reattached")})


if __name__ == "__main__":
    main()
