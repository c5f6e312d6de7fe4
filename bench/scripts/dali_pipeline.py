"""A DALI pipeline on the CPU, whose source is Python."""


import numpy
import paced
import torch
from nvidia.dali import fn, pipeline_def
from nvidia.dali.plugin.pytorch import DALIGenericIterator


def samples(info):
    if info.iteration * paced.BATCH >= paced.COUNT:
        raise StopIteration
    paced.pause(paced.SAMPLE_S)
    value = info.idx_in_epoch
    return numpy.full(8, value % 7, numpy.float32), numpy.array([value % 3])


@pipeline_def(batch_size=paced.BATCH, num_threads=1, device_id=None)
def pipeline():
    return tuple(fn.external_source(samples, num_outputs=2, batch=False))


training = paced.Training()
loader = DALIGenericIterator(pipeline(), ["x", "y"], size=paced.COUNT, auto_reset=True)
for epoch in range(1000):
    for batch in loader:
        training.step(batch[0]["x"], batch[0]["y"].flatten().to(torch.int64))
