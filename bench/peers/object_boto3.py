"""torch's DataLoader on a list of URLs: each worker gets the objects of a batch with boto3, on 32
threads."""

import concurrent.futures

import boto3
import botocore.config
import torch.utils.data

import object_common as common

args = common.arguments()
listed = common.urls(args.url)
THREADS = 32


class Objects(torch.utils.data.Dataset):
    client = pool = None

    def __len__(self):
        return len(listed)

    def get(self, index):
        bucket, _, key = listed[index].removeprefix("s3://").partition("/")
        data = self.client.get_object(Bucket=bucket, Key=key)["Body"].read()
        return common.decode(data), 0

    def __getitems__(self, indices):
        if self.pool is None:
            self.client = boto3.client("s3", config=botocore.config.Config(
                max_pool_connections=THREADS, s3={"addressing_style": "path"}))
            self.pool = concurrent.futures.ThreadPoolExecutor(THREADS)
        return list(self.pool.map(self.get, indices))


loader = torch.utils.data.DataLoader(Objects(), args.batch_size, shuffle=True,
                                     num_workers=args.workers)
common.serve("boto3 with threads", boto3.__version__, lambda: loader, args.seconds)
