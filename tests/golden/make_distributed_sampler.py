"""Writes distributed_sampler.txt: how torch itself deals samples to ranks.

Each line: samples, ranks, batch size, drop_last, rank, then the batches that
torch.utils.data.DataLoader over DistributedSampler(shuffle=False) gives, as
"i,i,i|i,i|". The C test compares the order room with it, so torch is not needed
to run the tests. Run it again only to add shapes, and read the difference.
"""

import pathlib

from torch.utils.data import BatchSampler, DistributedSampler

SHAPES = [
    (1, 1, 1), (1, 3, 2), (2, 5, 1), (3, 8, 4), (7, 1, 3), (10, 2, 2), (10, 3, 2),
    (11, 4, 3), (12, 4, 3), (13, 4, 3), (17, 3, 5), (30, 4, 4), (31, 2, 16), (64, 8, 2),
]

lines = []
for samples, ranks, batch in SHAPES:
    for drop_last in (False, True):
        for rank in range(ranks):
            sampler = DistributedSampler(
                range(samples), ranks, rank, shuffle=False, drop_last=drop_last
            )
            # drop_last with fewer samples than ranks is an error in torch for some
            # shapes (a negative length); it has no batches.
            if drop_last and samples < ranks:
                batches = []
            else:
                batches = list(BatchSampler(sampler, batch, drop_last))
            text = "".join(",".join(map(str, b)) + "|" for b in batches)
            lines.append(f"{samples} {ranks} {batch} {int(drop_last)} {rank} {text or '-'}")

path = pathlib.Path(__file__).with_name("distributed_sampler.txt")
path.write_text("\n".join(lines) + "\n")
