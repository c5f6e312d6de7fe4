"""A plain loop over a dataset with its own `__getitem__`, and whose files Headrace cannot see."""

import os

from paced import BATCH, WORKERS, Training, prepare
from torch.utils.data import DataLoader, Dataset


class Files(Dataset):
    def __init__(self, folder):
        self.folder, self.names = folder, sorted(os.listdir(folder))

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        with open(os.path.join(self.folder, self.names[index]), "rb") as file:
            first = file.read()[0]
        return prepare(first), first % 3


training = Training()
loader = DataLoader(Files("files"), BATCH, shuffle=True, num_workers=WORKERS)
for epoch in range(1000):
    for x, y in loader:
        training.step(x, y)
