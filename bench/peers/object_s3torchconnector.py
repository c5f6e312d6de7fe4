"""torch's DataLoader on S3MapDataset of s3torchconnector. A worker gets one object at a time, so it
has many of them."""

import os
from importlib.metadata import version

import torch.utils.data
from s3torchconnector import S3ClientConfig, S3MapDataset

import object_common as common

args = common.arguments()
dataset = S3MapDataset.from_objects(
    common.urls(args.url), region=os.environ["AWS_REGION"],
    endpoint=os.environ["AWS_ENDPOINT_URL"], transform=lambda one: (common.decode(one.read()), 0),
    s3client_config=S3ClientConfig(force_path_style=True))
loader = torch.utils.data.DataLoader(dataset, args.batch_size, shuffle=True,
                                     num_workers=args.workers)
common.serve("s3torchconnector", version("s3torchconnector"), lambda: loader, args.seconds)
