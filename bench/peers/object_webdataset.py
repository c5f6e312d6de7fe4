"""webdataset on tar files of a web server, which curl gets."""

from importlib.metadata import version

import webdataset

import object_common as common

args = common.arguments()
with open(args.url) as file:
    shards = [line.strip() for line in file]
dataset = webdataset.WebDataset(shards, shardshuffle=len(shards)).shuffle(1000).to_tuple("png")
dataset = dataset.map(lambda row: (common.decode(row[0]), 0)).batched(args.batch_size)
loader = webdataset.WebLoader(dataset, batch_size=None, num_workers=args.workers)
common.serve("webdataset", version("webdataset"), lambda: loader, args.seconds)
