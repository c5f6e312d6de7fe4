"""Trains one of three networks for a few steps on random images, as an example to measure.

    headrace memory record --out alexnet-64.hrm -- \\
        python examples/train_networks.py alexnet --batch-size 64
    headrace memory report alexnet-64.hrm --page alexnet-64.html

`mlp` has three layers and takes images of CIFAR-100's size as vectors; `alexnet` is Krizhevsky's
network and `resnet18` He's, both adapted to this size.
Runs on the CPU, or on a GPU with --device cuda.
"""

import argparse

import torch
from torch import nn

CLASSES, PIXELS = 100, 32


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * PIXELS * PIXELS, 1024), nn.ReLU(),
                         nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, CLASSES))


def alexnet():
    features = nn.Sequential(
        nn.Conv2d(3, 64, 3, stride=2, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(64, 192, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(192, 384, 3, padding=1), nn.ReLU(inplace=True),
        nn.Conv2d(384, 256, 3, padding=1), nn.ReLU(inplace=True),
        nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2))
    classifier = nn.Sequential(
        nn.Dropout(), nn.Linear(256 * 2 * 2, 4096), nn.ReLU(inplace=True),
        nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Linear(4096, CLASSES))
    return nn.Sequential(features, nn.Flatten(), classifier)


class Block(nn.Module):
    """Two convolutions and the way around them."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.way = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs))
        self.around = nn.Identity() if inputs == outputs and stride == 1 else nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        return torch.relu(self.way(x) + self.around(x))


def resnet18():
    layers, inputs = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64),
                      nn.ReLU(inplace=True)], 64
    for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(inputs, outputs, stride), Block(outputs, outputs, 1)]
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, CLASSES))


NETWORKS = {"mlp": mlp, "alexnet": alexnet, "resnet18": resnet18}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("network", choices=list(NETWORKS))
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    torch.manual_seed(0)
    network = NETWORKS[args.network]().to(args.device)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()
    for step in range(args.steps):
        images = torch.randn(args.batch_size, 3, PIXELS, PIXELS).to(args.device)
        labels = torch.randint(CLASSES, (args.batch_size,)).to(args.device)
        optimizer.zero_grad()
        loss = loss_of(network(images), labels)
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
