"""A training script as people write it for an accelerator: ResNet-50 in bfloat16 and
channels_last over a folder of photographs, with torch's DataLoader or Headrace's.

The network is written out here (He et al., Deep Residual Learning, 2015, with the stride
in the 3x3 convolution), because torchvision does not load with every torch. If it does not,
torch's loader uses PIL alone, with torchvision's crop.
"""

import os
import random
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "tools"))

import torch
from torch import nn

import stalls_common as common

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))  # channels inside, blocks
WIDER = 4  # channels of a block's output over those inside


def convolution(inputs, outputs, kernel, stride=1):
    return nn.Sequential(nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False),
                         nn.BatchNorm2d(outputs))


class Bottleneck(nn.Module):
    def __init__(self, inputs, inside, stride):
        super().__init__()
        self.body = nn.Sequential(
            convolution(inputs, inside, 1), nn.ReLU(inplace=True),
            convolution(inside, inside, 3, stride), nn.ReLU(inplace=True),
            convolution(inside, WIDER * inside, 1))
        same = inputs == WIDER * inside and stride == 1
        self.shortcut = nn.Identity() if same else convolution(inputs, WIDER * inside, 1, stride)

    def forward(self, x):
        return torch.relu(self.body(x) + self.shortcut(x))


def resnet50(classes):
    layers = [convolution(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for inside, blocks in STAGES:
        for number in range(blocks):
            stride = 2 if number == 0 and inside > 64 else 1
            layers.append(Bottleneck(inputs, inside, stride))
            inputs = WIDER * inside
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(inputs, classes))


class Photographs(torch.utils.data.Dataset):
    """torchvision's ImageFolder, RandomResizedCrop, flip and Normalize, with PIL alone."""

    def __init__(self, folder, size):
        labels = sorted(e.name for e in os.scandir(folder) if e.is_dir())
        self.classes, self.size = labels, size
        self.samples = sorted((entry.path, number) for number, label in enumerate(labels)
                              for entry in os.scandir(os.path.join(folder, label))
                              if entry.name.lower().endswith((".jpg", ".jpeg", ".png")))
        self.mean = torch.tensor(MEAN).view(3, 1, 1)
        self.std = torch.tensor(STD).view(3, 1, 1)

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        import numpy
        import worker
        from PIL import Image

        path, label = self.samples[index]
        with Image.open(path) as image:
            image = image.convert("RGB")
            left, top, width, height = worker.crop(random, *image.size)
            box = (left, top, left + width, top + height)
            image = image.resize((self.size, self.size), Image.Resampling.BILINEAR, box)
        if random.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        pixels = torch.from_numpy(numpy.array(image)).permute(2, 0, 1)
        return (pixels.float().div_(255) - self.mean) / self.std, label


def stock(args):
    """Returns a dataset and torch's DataLoader."""
    try:
        import torchvision_shim

        torchvision_shim.prepare()
        from torchvision.datasets import ImageFolder
        from torchvision.transforms import v2 as transforms
    except (ImportError, RuntimeError):
        return Photographs(args.data, args.size), torch.utils.data.DataLoader
    return (ImageFolder(args.data, transform=augmentation(transforms, args.size)),
            torch.utils.data.DataLoader)


def augmentation(T, size):
    return T.Compose([T.RandomResizedCrop(size), T.RandomHorizontalFlip(), T.ToImage(),
                      T.ToDtype(torch.float32, scale=True), T.Normalize(MEAN, STD)])


def make_loader(args, device):
    if args.loader == "headrace":
        from headrace import ImageFolder, transforms
        from headrace.torch import DataLoader

        dataset = ImageFolder(args.data, transform=augmentation(transforms, args.size))
        options = {}
    else:
        dataset, DataLoader = stock(args)
        options = {"persistent_workers": bool(args.workers)}
    loader = DataLoader(common.part(dataset, args.samples), args.batch_size, shuffle=True,
                        drop_last=True, num_workers=args.workers,
                        pin_memory=device.type == "cuda", **options)
    return loader, len(dataset.classes)


def make_step(device, classes):
    torch.manual_seed(0)
    network = resnet50(classes).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    loss_of = nn.CrossEntropyLoss()

    def step(images, labels):
        images = images.to(device, memory_format=torch.channels_last, non_blocking=True)
        labels = labels.to(device, non_blocking=True)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, torch.bfloat16):
            loss = loss_of(network(images), labels)
        loss.backward()
        optimizer.step()

    return step


def main():
    parser = common.arguments()
    parser.add_argument("--loader", choices=["torch", "headrace"], required=True)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    device = torch.device(args.device)
    loader, classes = make_loader(args, device)
    synchronize = torch.cuda.synchronize if device.type == "cuda" else None
    common.run(args, loader, make_step(device, classes), synchronize)


if __name__ == "__main__":
    main()
