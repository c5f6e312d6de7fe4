"""FFCV's Loader over a file of its own writer: random order, its random-resized
crop, flip and normalisation to float32, as in its ImageNet example."""

from importlib.metadata import version

import numpy as np
import torch
from ffcv.fields.decoders import IntDecoder, RandomResizedCropRGBImageDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import (NormalizeImage, RandomHorizontalFlip, Squeeze, ToTensor,
                             ToTorchImage)

import loader_common as common

args = common.arguments()
mean, std = (np.array(v) * 255 for v in (common.MEAN, common.STD))
image = [RandomResizedCropRGBImageDecoder((224, 224)), RandomHorizontalFlip(),
         NormalizeImage(mean, std, np.float32), ToTensor(), ToTorchImage(convert_back_int16=False)]
loader = Loader(args.data, batch_size=args.batch_size, num_workers=args.workers,
                order=OrderOption.RANDOM, os_cache=True, drop_last=False,
                pipelines={"image": image, "label": [IntDecoder(), ToTensor(), Squeeze()]})
common.serve("FFCV", f"ffcv {version('ffcv')}, torch {torch.__version__}",
             loader)
