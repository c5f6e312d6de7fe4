"""The blocks of an AlexNet's training, each computed by hand from the layers' shapes."""

from collections import Counter

import pytest

torch = pytest.importorskip("torch")

from memory_record import ALLOC, BACKWARD, FORWARD, MARK, OUTSIDE, PRESENT, Record  # noqa: E402

import headrace.memory as memory  # noqa: E402

FLOAT, LONG = 4, 8
PARAMETER, GRADIENT, OPTIMIZER_STATE = 1, 2, 3
PIXELS, HIDDEN, CLASSES = 64, 512, 10
# Channels in and out, kernel, stride, padding; or the kernel and stride of a pooling.
FEATURES = [(3, 64, 11, 4, 2), "relu", (3, 2), (64, 192, 5, 1, 2), "relu", (3, 2),
            (192, 384, 3, 1, 1), "relu", (384, 256, 3, 1, 1), "relu", (256, 256, 3, 1, 1), "relu",
            (3, 2)]


def layer_of(what):
    if what == "relu":
        return torch.nn.ReLU(inplace=True)
    if len(what) == 2:
        return torch.nn.MaxPool2d(*what)
    return torch.nn.Conv2d(*what)


class AlexNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        nn = torch.nn
        self.features = nn.Sequential(*map(layer_of, FEATURES))
        self.avgpool = nn.AdaptiveAvgPool2d((6, 6))
        self.classifier = nn.Sequential(
            nn.Dropout(), nn.Linear(256 * 36, HIDDEN), nn.ReLU(inplace=True), nn.Dropout(),
            nn.Linear(HIDDEN, HIDDEN), nn.ReLU(inplace=True), nn.Linear(HIDDEN, CLASSES))

    def forward(self, x):
        return self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))


def weights_by_hand():
    """Bytes of weight and bias, by part."""
    weights = {}
    for i, layer in enumerate(FEATURES):
        if len(layer) == 5:
            channels, out, kernel = layer[:3]
            weights[f"features.{i}"] = [out * channels * kernel * kernel * FLOAT, out * FLOAT]
    for i, (inputs, out) in {1: (256 * 36, HIDDEN), 4: (HIDDEN, HIDDEN),
                             6: (HIDDEN, CLASSES)}.items():
        weights[f"classifier.{i}"] = [out * inputs * FLOAT, out * FLOAT]
    return weights


def forward_by_hand(batch):
    """Returns (part, bytes) of the blocks that the forward pass makes, and of those of them that
    the backward pass uses."""
    made, used, size, channels = Counter(), Counter(), PIXELS, 3
    for i, layer in enumerate(FEATURES):
        part = f"features.{i}"
        if layer == "relu":
            continue  # in place
        kernel, stride, padding = layer[2:] if len(layer) == 5 else (*layer, 0)
        channels = layer[1] if len(layer) == 5 else channels
        size = (size + 2 * padding - kernel) // stride + 1
        elements = batch * channels * size * size
        made[part, elements * FLOAT] += 1
        used[part, elements * FLOAT] += 1
        if len(layer) == 2:  # positions of the maxima
            made[part, elements * LONG] += 1
            used[part, elements * LONG] += 1
    pooled, hidden, logits = (batch * n * FLOAT for n in (256 * 36, HIDDEN, CLASSES))
    made["avgpool", pooled] += 1  # of dropout, its product is kept
    for part, size in ("classifier.0", pooled), ("classifier.3", hidden):
        made[part, size] += 2  # the dropped positions, and the product
        used[part, size] += 2
    for part in ("classifier.1", "classifier.4"):
        made[part, hidden] += 1
        used[part, hidden] += 1
    made["classifier.6", logits] += 1
    loss = "CrossEntropyLoss"
    made[loss, logits] += 1  # logarithms of the softmax
    used[loss, logits] += 1
    made[loss, FLOAT] += 2  # the loss, and the weight of all samples
    used[loss, FLOAT] += 1
    return made, used


@pytest.mark.parametrize("batch", [1, 4])
def test_alexnet(tmp_path, batch):
    path = tmp_path / "alexnet.hrm"
    torch.manual_seed(0)
    model, loss_of = AlexNet(), torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    with memory.record(path):
        for _ in range(3):
            x, y = torch.randn(batch, 3, PIXELS, PIXELS), torch.randint(0, CLASSES, (batch,))
            optimizer.zero_grad()
            loss_of(model(x), y).backward()
            optimizer.step()
    record = Record(path)
    assert record.facts["batch size"] == str(batch)
    marks = [e.time_ns for e in record.of(MARK)]
    assert len(marks) == 4
    second = [b for b in record.blocks()
              if b["alloc"].kind == ALLOC and marks[1] < b["alloc"].time_ns < marks[2]]
    made, used = forward_by_hand(batch)
    forward = [b for b in second if b["alloc"].phase == FORWARD]
    assert Counter((b["part"], b["bytes"]) for b in forward) == made
    assert Counter((b["part"], b["bytes"]) for b in forward
                   if any(e.phase == BACKWARD for e in b["accesses"])) == used
    inputs = [b["bytes"] for b in second if b["alloc"].phase == OUTSIDE]
    assert inputs == [batch * 3 * PIXELS * PIXELS * FLOAT, batch * LONG]
    assert record.sizes(PRESENT)  # the parameters

    weights = weights_by_hand()
    expected = Counter((part, size) for part, sizes in weights.items() for size in sizes)
    total = sum(size * n for (_, size), n in expected.items())

    def of_category(category, blocks):
        # Blocks without a part belong to other tests.
        return Counter((b["part"], b["bytes"]) for b in blocks
                       if b["category"] == category and b["part"])

    assert of_category(PARAMETER, record.blocks()) == expected
    assert of_category(GRADIENT, second) == expected
    assert of_category(OPTIMIZER_STATE, record.blocks()) == expected
    assert total == sum(p.numel() * FLOAT for p in model.parameters())

    found = memory.analyse(path)
    peak = found["devices"][0]["peak"]
    others = sum(b["bytes"] for b in record.blocks()
                 if b["category"] == PARAMETER and not b["part"])
    assert peak["parameter"] - others == peak["optimizer state"] == total
    # A replay of the log: live bytes are never negative, and its peak equals the analysis' peak.
    live = most = 0
    steps = sorted([(b["alloc"].time_ns, 1, b["bytes"]) for b in record.blocks()]
                   + [(b["free"].time_ns, 0, -b["bytes"]) for b in record.blocks() if b["free"]])
    for _, _, change in steps:
        live += change
        most = max(most, live)
        assert live >= 0
    assert most == found["devices"][0]["peak_bytes"]
