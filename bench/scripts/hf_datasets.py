"""Hugging Face datasets over a Parquet file that this script makes if it is missing."""

import os

import datasets
from paced import BATCH, COUNT, WORKERS, Training, prepare
from torch.utils.data import DataLoader

if not os.path.exists("rows.parquet"):
    rows = {"value": list(range(COUNT)), "text": ["x" * 200] * COUNT}
    datasets.Dataset.from_dict(rows).to_parquet("rows.parquet")


def transform(rows):
    return {
        "x": [prepare(value) for value in rows["value"]],
        "y": [value % 3 for value in rows["value"]],
    }


data = datasets.load_dataset("parquet", data_files="rows.parquet", split="train")
data = data.with_transform(transform)
training = Training()
for epoch in range(1000):
    for batch in DataLoader(data, BATCH, shuffle=True, num_workers=WORKERS):
        training.step(batch["x"], batch["y"])
