"""An IterableDataset whose samples are divided among its workers."""

from paced import BATCH, COUNT, WORKERS, Training, prepare
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Stream(IterableDataset):
    def __iter__(self):
        worker = get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        for index in range(first, COUNT, step):
            yield prepare(index), index % 3


training = Training()
loader = DataLoader(Stream(), BATCH, num_workers=WORKERS)
for epoch in range(1000):
    for x, y in loader:
        training.step(x, y)
