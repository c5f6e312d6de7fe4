"""Samples in an LMDB that this script makes if it is missing."""

import os

import lmdb
from paced import BATCH, COUNT, WORKERS, Training, prepare
from torch.utils.data import DataLoader, Dataset

if not os.path.exists("rows.lmdb"):
    with lmdb.open("rows.lmdb", map_size=64 << 20) as made, made.begin(write=True) as writing:
        for index in range(COUNT):
            writing.put(f"{index:06}".encode(), bytes([index % 7]) * 500)


class Rows(Dataset):
    opened = None

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        if self.opened is None:
            self.opened = lmdb.open("rows.lmdb", readonly=True, lock=False)
        with self.opened.begin() as reading:
            value = reading.get(f"{index:06}".encode())[0]
        return prepare(value), index % 3


training = Training()
for epoch in range(1000):
    for x, y in DataLoader(Rows(), BATCH, shuffle=True, num_workers=WORKERS):
        training.step(x, y)
