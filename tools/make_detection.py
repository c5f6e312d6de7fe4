"""Makes a set to train detectors with: photographs with pasted objects, whose boxes are known.

An object is a part of another photograph, cut out as a disc, a triangle or a ring, which is its
class. Writes OUT/images/000000.jpg, ... and OUT/instances.json in COCO's format.

    python tools/make_detection.py PHOTOGRAPHS OUT [--count N] [--size PIXELS]

PHOTOGRAPHS is any folder of images, such as the one that tools/make_samples.py makes.
"""

import argparse
import json
import random
from pathlib import Path

from PIL import Image, ImageDraw

CLASSES = ("disc", "triangle", "ring")


def photographs(folder: Path) -> list[Path]:
    found = sorted(p for p in folder.rglob("*") if p.suffix.lower() in (".jpg", ".jpeg", ".png"))
    if not found:
        raise SystemExit(f"no photographs below {folder}")
    return found


def window(draw: random.Random, paths: list[Path], size: tuple[int, int]) -> Image.Image:
    """Returns a random part of a random photograph, width by height."""
    with Image.open(draw.choice(paths)) as opened:
        image = opened.convert("RGB")
    factor = max(size[0] / image.width, size[1] / image.height, 1)
    if factor > 1:
        image = image.resize((-int(-image.width * factor // 1), -int(-image.height * factor // 1)))
    x = draw.randrange(image.width - size[0] + 1)
    y = draw.randrange(image.height - size[1] + 1)
    return image.crop((x, y, x + size[0], y + size[1]))


def shape(kind: str, width: int, height: int) -> Image.Image:
    """Returns the mask of an object, which touches all four sides."""
    mask = Image.new("L", (width, height))
    pen = ImageDraw.Draw(mask)
    all_of_it = (0, 0, width - 1, height - 1)
    if kind == "triangle":
        pen.polygon([(0, height - 1), (width - 1, height - 1), (width // 2, 0)], fill=255)
    else:
        pen.ellipse(all_of_it, fill=255)
    if kind == "ring":
        pen.ellipse((width // 4, height // 4, 3 * width // 4, 3 * height // 4), fill=0)
    return mask


def paste(draw: random.Random, image: Image.Image, paths: list[Path]) -> dict[str, object]:
    """Pastes an object. Returns its class and box."""
    side = min(image.size)
    width, height = draw.randint(side // 6, side // 2), draw.randint(side // 6, side // 2)
    x, y = draw.randint(0, image.width - width), draw.randint(0, image.height - height)
    kind = draw.randrange(len(CLASSES))
    part = window(draw, paths, (width, height))
    # a tint for each class, so that a small network learns within minutes
    tint = Image.new("RGB", part.size, ((230, 40, 40), (40, 200, 60), (50, 80, 230))[kind])
    image.paste(Image.blend(part, tint, 0.5), (x, y), shape(CLASSES[kind], width, height))
    return {
        "category_id": kind + 1,
        "bbox": [x, y, width, height],
        "area": width * height,
        "iscrowd": 0,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("photographs", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--size", type=int, default=400, help="the longer side")
    options = parser.parse_args()
    paths = photographs(options.photographs)
    (options.out / "images").mkdir(parents=True, exist_ok=True)
    images, annotations = [], []
    for n in range(options.count):
        draw = random.Random(n)
        size = (options.size, options.size * 3 // 4)
        image = window(draw, paths, size if draw.random() < 0.7 else size[::-1])
        for _ in range(draw.randint(1, 4)):
            found = paste(draw, image, paths)
            annotations.append({"id": len(annotations) + 1, "image_id": n, **found})
        name = f"{n:06}.jpg"
        image.save(options.out / "images" / name, quality=92)
        width, height = image.size
        images.append({"id": n, "file_name": name, "width": width, "height": height})
    categories = [{"id": i + 1, "name": name} for i, name in enumerate(CLASSES)]
    whole = {"images": images, "annotations": annotations, "categories": categories}
    (options.out / "instances.json").write_text(json.dumps(whole))
    print(f"{len(images)} images, {len(annotations)} objects in {options.out}")


if __name__ == "__main__":
    main()
