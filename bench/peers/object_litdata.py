"""litdata on chunks of its own. With --write FOLDER it makes them of the images in a folder."""

import os
import sys
from importlib.metadata import version

import litdata

import object_common as common


def read(path):
    with open(path, "rb") as file:
        return {"image": file.read()}


class Images(litdata.StreamingDataset):
    def __getitem__(self, index):
        return common.decode(super().__getitem__(index)["image"]), 0


if __name__ == "__main__":
    if sys.argv[1] == "--write":
        litdata.optimize(fn=read, inputs=[os.path.join(sys.argv[3], name) for name in
                                          sorted(os.listdir(sys.argv[3]))],
                         output_dir=sys.argv[2], chunk_bytes="16MB", num_workers=1)
        sys.exit()
    args = common.arguments()
    dataset = Images(args.url, shuffle=True, storage_options={
        "endpoint_url": os.environ["AWS_ENDPOINT_URL"],
        "aws_access_key_id": os.environ["AWS_ACCESS_KEY_ID"],
        "aws_secret_access_key": os.environ["AWS_SECRET_ACCESS_KEY"]})
    loader = litdata.StreamingDataLoader(dataset, batch_size=args.batch_size,
                                         num_workers=args.workers)
    common.serve("litdata", version("litdata"), lambda: loader, args.seconds)
