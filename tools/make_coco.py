"""Writes a COCO annotation file as large as is asked for, to measure its reader with.

The defaults give the size of train2017's instances: 118,287 images, 860,001 annotations, 448 MB.

    python tools/make_coco.py FILE [--images N] [--annotations N] [--polygon-points N]
"""

import argparse
import json
import random


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file")
    parser.add_argument("--images", type=int, default=118287)
    parser.add_argument("--annotations", type=int, default=860001)
    parser.add_argument("--polygon-points", type=int, default=23, help="mean of each polygon")
    options = parser.parse_args()
    draw = random.Random(1)
    polygons = [
        json.dumps([[round(draw.uniform(0, 640), 2) for _ in range(2 * draw.randrange(1, limit))]])
        for limit in [2 * options.polygon_points] * 2000
    ]
    categories = [{"id": i, "name": f"category {i}", "supercategory": "any"} for i in range(1, 91)]
    ids = draw.sample(range(1, 10 * options.images), options.images)
    with open(options.file, "w") as out:
        out.write('{"info": {"year": 2017}, "licenses": [], "images": [')
        for n, i in enumerate(ids):
            image = {
                "license": 3,
                "file_name": f"{i:012}.jpg",
                "coco_url": f"http://images.cocodataset.org/train2017/{i:012}.jpg",
                "height": 427,
                "width": 640,
                "date_captured": "2013-11-14 16:28:13",
                "flickr_url": f"http://farm4.staticflickr.com/3153/{i}_cbb4716c23_z.jpg",
                "id": i,
            }
            out.write((", " if n else "") + json.dumps(image))
        out.write('], "annotations": [')
        for n in range(options.annotations):
            x, y = round(draw.uniform(0, 600), 2), round(draw.uniform(0, 400), 2)
            width, height = round(draw.uniform(1, 40), 2), round(draw.uniform(1, 27), 2)
            out.write(
                f'{", " if n else ""}{{"segmentation": {draw.choice(polygons)}, '
                f'"area": {width * height * 0.6:.4f}, "iscrowd": 0, "image_id": '
                f'{ids[draw.randrange(len(ids))]}, "bbox": [{x}, {y}, {width}, {height}], '
                f'"category_id": {draw.randrange(1, 91)}, "id": {n + 100}}}'
            )
        out.write(f'], "categories": {json.dumps(categories)}}}')


if __name__ == "__main__":
    main()
