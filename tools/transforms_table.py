"""Writes docs/transforms.md: what becomes of every transform of torchvision and timm.

Makes each class with arguments, translates it and says what happened: it runs in C, or in Python
after what runs in C, or not at all. `--check` compares the file with the result and writes nothing.

    python tools/transforms_table.py [--check] [FILE]
"""

import argparse
import inspect
import sys
import tempfile
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import torchvision_shim  # noqa: E402

torchvision_shim.prepare()

import torch  # noqa: E402
import torchvision  # noqa: E402
from torchvision import transforms as v1  # noqa: E402
from torchvision.transforms import v2  # noqa: E402

import headrace  # noqa: E402
from headrace._torchvision import beginnings  # noqa: E402

FILE = Path(__file__).parent.parent / "docs" / "transforms.md"

# Arguments of the classes that need some, by name.
ARGUMENTS = {
    "CenterCrop": (224,),
    "CenterCropOrPad": (224,),
    "Compose": ([],),
    "ConvertBoundingBoxFormat": ("XYXY",),
    "ConvertImageDtype": (torch.float32,),
    "FiveCrop": (224,),
    "GaussianBlur": (3,),
    "JPEG": (50,),
    "Lambda": (len,),
    "LinearTransformation": (torch.eye(3), torch.zeros(3)),
    "Normalize": ([0.5] * 3, [0.5] * 3),
    "Pad": (2,),
    "RandomAdjustSharpness": (2,),
    "RandomAffine": (10,),
    "RandomApply": ([],),
    "RandomChoice": ([],),
    "RandomCrop": (224,),
    "RandomCropOrPad": (224,),
    "RandomOrder": ([],),
    "RandomPad": ((224, 224),),
    "RandomPosterize": (4,),
    "RandomResize": (200, 300),
    "RandomResizedCrop": (224,),
    "RandomResizedCropAndInterpolation": (224,),
    "RandomRotation": (10,),
    "RandomShortestSize": (224,),
    "RandomSolarize": (128,),
    "Resize": (256,),
    "ResizeKeepRatio": (224,),
    "ScaleJitter": ((224, 224),),
    "TenCrop": (224,),
    "ToDtype": (torch.float32,),
    "TrimBorder": (4,),
    "UniformTemporalSubsample": (4,),
}
# What must come before a class for its place to be right.
TENSOR = ("Normalize", "RandomErasing", "ToDtype", "ConvertImageDtype")
# Not transforms of images: they change boxes, key points or videos, or are bases.
OTHERS = {
    "ClampBoundingBoxes",
    "ClampKeyPoints",
    "ConvertBoundingBoxFormat",
    "RandomIoUCrop",
    "SanitizeBoundingBoxes",
    "SanitizeKeyPoints",
    "SetClampingMode",
    "Transform",
    "UniformTemporalSubsample",
}
BATCHES = {"MixUp", "CutMix"}
NOTES = {
    "Grayscale": "with `num_output_channels=3`",
    "Resize": "bilinear, bicubic and nearest",
    "RandomResizedCrop": "bilinear, bicubic and nearest",
    "ToPILImage": "leave it out before the first conversion: images are decoded natively",
}


def timms():
    from timm.data import random_erasing, transforms

    found = {}
    for module in (transforms, random_erasing):
        for name, cls in inspect.getmembers(module, inspect.isclass):
            if cls.__module__ == module.__name__:
                found[name] = cls
    return found


def timms_policies():
    """timm's factories of policies, which are not made by their classes."""
    from timm.data import auto_augment as make

    hparams = {"img_mean": (124, 116, 104), "translate_pct": 0.45}
    return {
        "rand_augment_transform": make.rand_augment_transform("rand-m9-mstd0.5-inc1", hparams),
        "auto_augment_transform": make.auto_augment_transform("original", hparams),
        "augment_and_mix_transform": make.augment_and_mix_transform("augmix-m5-w4-d2", hparams),
    }


def classes_of(module):
    return {
        name: cls
        for name, cls in inspect.getmembers(module, inspect.isclass)
        if name not in OTHERS
        and not name.startswith("_")
        and issubclass(cls, torch.nn.Module)
        or name in ("Compose", "Lambda", "PILToTensor", "RandomChoice", "RandomOrder", "ToPILImage", "ToTensor")
        and hasattr(module, name)
    }


def instance(name, cls):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if name == "RandomErasing" and cls.__module__.startswith("timm"):
            return cls(device="cpu")
        if name in ("Grayscale",):
            return cls(3)
        if name in BATCHES:
            return cls(num_classes=10)
        if name in ("RandomApply", "RandomChoice", "RandomOrder", "Compose"):
            return cls([v1.CenterCrop(224)])
        return cls(*ARGUMENTS.get(name, ()))


def verdict(name, made, before):
    """Returns where it runs ("C", "batch", "Python") and a remark."""
    if name in BATCHES:
        return "C", "give it to the DataLoader as `mix=`"
    longest = beginnings([*before, made], headrace.transforms.make)[0]
    if not longest.rest:
        return "C", NOTES.get(name, "")
    reason = longest.why.partition(": ")[2]
    return "Python", NOTES.get(name, reason)


def rows(found):
    out = []
    for name, cls in sorted(found.items()):
        made = cls if not inspect.isclass(cls) else instance(name, cls)
        is_tensor = name in TENSOR
        before = [v1.PILToTensor()] if is_tensor else []
        if name == "Normalize":
            before = [v1.ToTensor()]
        where, remark = verdict(name, made, before)
        out.append((name, where, remark))
    return out


def table(title, found):
    """Returns the lines of one package's table, and how many classes run in C."""
    body = rows(found)
    native = sum(where == "C" for _, where, _ in body)
    lines = [f"## {title}", "", f"{native} of {len(body)} run in C.", ""]
    lines += ["| transform | runs in | remark |", "|---|---|---|"]
    lines += [f"| `{name}` | {where} | {remark} |" for name, where, remark in body]
    return lines, native, len(body)


def accepted(found):
    """Returns how many of the classes a loader takes, in C or in Python."""
    from PIL import Image

    import headrace.torch

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "image.png")
        Image.new("RGB", (300, 300)).save(path)
        dataset = headrace.ImageList([(str(path), 0)])
        taken = 0
        for name, cls in found.items():
            if name in BATCHES:
                steps = v1.Compose([v1.CenterCrop(224), v1.ToTensor()])
                extra = {"transform": steps, "mix": instance(name, cls)}
            else:
                before = [v1.CenterCrop(280), v1.PILToTensor()] if name in TENSOR else []
                before = [v1.CenterCrop(280), v1.ToTensor()] if name == "Normalize" else before
                extra = {"transform": v1.Compose([*before, instance(name, cls)])}
            try:
                headrace.torch.DataLoader(dataset, 1, num_workers=0, **extra)
                taken += 1
            except (TypeError, ValueError, NotImplementedError) as error:
                print(f"{name}: {error}", file=sys.stderr)
    return taken


def page():
    import timm

    packages = [
        (f"torchvision {torchvision.__version__.partition('+')[0]}, v2", classes_of(v2)),
        (f"torchvision {torchvision.__version__.partition('+')[0]}, v1", classes_of(v1)),
        (f"timm {timm.__version__}", {**timms(), **timms_policies()}),
    ]
    lines = [
        "# Transforms: what runs where",
        "",
        "Every transform of images in torchvision and timm works in a Headrace loader. Those that run in C cost the",
        "least. From the first one that does not, transforms run in Python worker processes, after what runs in C.",
        "`headrace.explain(loader)` shows the division of your own pipeline.",
        "For Albumentations see [python.md](python.md#transforms).",
        "",
        "`tools/transforms_table.py` makes this page by translating an instance of each class. A test compares it.",
        "Transforms of boxes, key points and videos are not listed.",
        "",
    ]
    for title, found in packages:
        lines += [*table(title, found)[0], ""]
    return "\n".join(lines).rstrip() + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", nargs="?", type=Path, default=FILE)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    options = parser.parse_args()
    text = page()
    if not options.check:
        options.file.write_text(text)
    elif options.file.read_text() != text:
        sys.exit(f"{options.file} is not up to date: run python tools/transforms_table.py")


if __name__ == "__main__":
    main()
