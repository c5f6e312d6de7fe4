"""WebDataset over tar shards that this script makes if they are missing."""

import os

import webdataset
from paced import BATCH, COUNT, WORKERS, Training, prepare
from torch.utils.data import DataLoader

if not os.path.isdir("shards"):
    os.makedirs("shards")
    for shard in range(4):
        with webdataset.TarWriter(f"shards/{shard}.tar") as writer:
            for index in range(shard, COUNT, 4):
                writer.write({"__key__": f"{index:06}", "cls": index % 3, "bin": bytes(500)})

names = [f"shards/{shard}.tar" for shard in range(4)]
data = webdataset.WebDataset(names, shardshuffle=False).decode().to_tuple("cls", "bin")
data = data.map(lambda sample: (prepare(sample[0]), sample[0]))
training = Training()
for epoch in range(1000):
    for x, y in DataLoader(data, BATCH, num_workers=WORKERS):
        training.step(x, y)
