"""A training script over a folder of photographs, with torch's DataLoader or Headrace's; the
step sleeps (--step-ms), in place of an accelerator, or trains a small network on the CPU.
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools"))

import torch

import stalls_common as common

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def library(args):
    """Returns ImageFolder, transforms, DataLoader, and more arguments for DataLoader."""
    if args.loader == "headrace":
        from headrace import ImageFolder, transforms
        from headrace.torch import DataLoader

        cache = {"cache": args.cache, "cache_form": "encoded"} if args.cache else {}
        return ImageFolder, transforms, DataLoader, cache
    import torchvision_shim

    torchvision_shim.prepare()
    from torch.utils.data import DataLoader
    from torchvision.datasets import ImageFolder
    from torchvision.transforms import v2

    return ImageFolder, v2, DataLoader, {"persistent_workers": bool(args.workers)}


def make_loader(args):
    ImageFolder, T, DataLoader, options = library(args)
    to_tensor = [T.ToImage(), T.ToDtype(torch.float32, scale=True), T.Normalize(MEAN, STD)]
    transform = T.Compose([T.RandomResizedCrop(args.size), T.RandomHorizontalFlip(), *to_tensor])
    folder = ImageFolder(args.data, transform=transform)
    loader = DataLoader(common.part(folder, args.samples), args.batch_size, shuffle=True,
                        drop_last=True, num_workers=args.workers, **options)
    return loader, len(folder.classes)


def main():
    parser = common.arguments()
    parser.add_argument("--loader", choices=["torch", "headrace"], required=True)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--cache", type=int, help="bytes, of Headrace's loader")
    parser.add_argument("--threads", type=int, help="threads of the network; default: torch's")
    args = parser.parse_args()
    common.exact_timers()
    if args.threads:
        torch.set_num_threads(args.threads)
    loader, classes = make_loader(args)
    step = common.network_step(classes) if args.step_ms is None \
        else common.sleeping_step(args.step_ms)
    common.run(args, loader, step)


if __name__ == "__main__":
    main()
