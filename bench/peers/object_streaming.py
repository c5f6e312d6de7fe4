"""mosaicml-streaming on shards of its own. With --write FOLDER it makes them of the images in
--url, a folder."""

import os
import sys
import tempfile
from importlib.metadata import version

import torch.utils.data
from streaming import MDSWriter, StreamingDataset

import object_common as common

if sys.argv[1] == "--write":
    with MDSWriter(out=sys.argv[2], columns={"image": "bytes"}, size_limit=1 << 24) as out:
        for name in sorted(os.listdir(sys.argv[3])):
            with open(os.path.join(sys.argv[3], name), "rb") as file:
                out.write({"image": file.read()})
    sys.exit()


class Images(StreamingDataset):
    def __getitem__(self, index):
        return common.decode(super().__getitem__(index)["image"]), 0


args = common.arguments()
os.environ["S3_ENDPOINT_URL"] = os.environ["AWS_ENDPOINT_URL"]
with tempfile.TemporaryDirectory() as local:
    dataset = Images(remote=args.url, local=local, shuffle=True, batch_size=args.batch_size)
    loader = torch.utils.data.DataLoader(dataset, args.batch_size, num_workers=args.workers)
    common.serve("mosaicml-streaming", version("mosaicml-streaming"), lambda: loader,
                 args.seconds)
