"""A training script with known rates: a step that sleeps for --step-ms, a dataset that
takes --prepare-ms for each sample without using a core, and files from a disk.

The CPU time that a worker takes to read a file is part of --prepare-ms, so the loader's rate is
exactly workers / prepare. The time that it waits for the disk is not part of it.
"""

import os
import time

import torch

import stalls_common as common


class Paced(torch.utils.data.Dataset):
    """Reads a file, then sleeps."""

    def __init__(self, folder, prepare_ms):
        self.samples = sorted((entry.path, number) for number, label in enumerate(
            sorted((e for e in os.scandir(folder) if e.is_dir()), key=lambda e: e.name))
            for entry in os.scandir(label.path) if entry.name.endswith(".jpg"))
        self.prepare_s = prepare_ms / 1e3
        self.pace = common.Pace()  # each worker has its own copy

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        path, label = self.samples[index]
        cpu = time.thread_time()
        with open(path, "rb", buffering=0) as f:
            data = f.readall()
        self.pace.sleep(self.prepare_s - (time.thread_time() - cpu))
        return len(data), label


def main():
    parser = common.arguments()
    parser.add_argument("--prepare-ms", type=float, required=True)
    args = parser.parse_args()
    common.exact_timers()
    torch.set_num_threads(1)
    dataset = common.part(Paced(args.data, args.prepare_ms), args.samples)
    loader = torch.utils.data.DataLoader(dataset, args.batch_size, shuffle=True, drop_last=True,
                                         num_workers=args.workers, persistent_workers=True)
    common.run(args, loader, common.sleeping_step(args.step_ms))


if __name__ == "__main__":
    main()
