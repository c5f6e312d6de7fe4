"""Datasets of images with boxes, and what becomes of the boxes: against torchvision's transforms."""

import json
import pickle
import re

import numpy as np
import pytest
import torch
from PIL import Image

import headrace
import headrace.transforms as T
from headrace.torch import DataLoader

SIZES = [(60, 80), (75, 50), (64, 64), (40, 99)]  # height, width


def picture(path, height, width, orientation=1):
    noise = np.random.default_rng(height * width).integers(0, 256, (height, width, 3), dtype=np.uint8)
    image = Image.fromarray(noise)
    exif = image.getexif()
    exif[0x0112] = orientation
    image.save(path, exif=exif)


@pytest.fixture
def coco(tmp_path):
    """A folder of images and a file of annotations; one image has no box."""
    rng = np.random.default_rng(4)
    images, annotations = [], []
    for n, (height, width) in enumerate(SIZES):
        picture(tmp_path / f"{n}.png", height, width)
        images.append({"id": 40 - n, "file_name": f"{n}.png", "height": height, "width": width})
        for _ in range(3 * n):
            x, y = rng.uniform(-3, width - 5), rng.uniform(0, height - 5)
            box = [x, y, rng.uniform(0, width - x), rng.uniform(0, height - y)]
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": 40 - n,
                    "category_id": int(rng.integers(1, 4)),
                    "bbox": [round(float(v), 2) for v in box],
                    "area": 7.5,
                    "iscrowd": int(rng.integers(0, 2)),
                    "keypoints": [float(x), float(y), 2, 0, 0, 0],
                }
            )
    categories = [{"id": i, "name": f"kind {i}"} for i in (3, 1, 2)]
    whole = {"images": images, "annotations": annotations, "categories": categories}
    (tmp_path / "instances.json").write_text(json.dumps(whole))
    return tmp_path, whole


def opened(coco, transform=None, **options):
    return headrace.CocoDetection(coco[0], coco[0] / "instances.json", transform, **options)


def samples(dataset, transform, **options):
    """All samples of an epoch in their order: image, target."""
    loader = DataLoader(dataset, 2, transform=transform, **options)
    return [(image, target) for images, targets in loader for image, target in zip(images, targets)]


def expected_rows(whole, image_id):
    """Boxes as torchvision's wrap_dataset_for_transforms_v2 makes them, and labels."""
    from torchvision import tv_tensors
    from torchvision.transforms.v2 import functional

    found = [a for a in whole["annotations"] if a["image_id"] == image_id]
    image = next(i for i in whole["images"] if i["id"] == image_id)
    boxes = tv_tensors.BoundingBoxes(
        torch.tensor([a["bbox"] for a in found]).reshape(-1, 4),
        format="XYWH",
        canvas_size=(image["height"], image["width"]),
    )
    labels = torch.tensor([a["category_id"] for a in found], dtype=torch.int64)
    return functional.convert_bounding_box_format(boxes, new_format="XYXY"), labels


def test_coco_gives_torchvisions_targets(coco, v2):
    dataset = opened(coco)
    assert dataset.classes == ["", "kind 1", "kind 2", "kind 3"]
    assert dataset.class_to_idx == {"kind 1": 1, "kind 2": 2, "kind 3": 3}
    for n, (_, target) in enumerate(samples(dataset, T.CenterCrop(300))):
        assert target["image_id"].item() == 37 + n
        boxes, labels = expected_rows(coco[1], 37 + n)
        assert torch.equal(target["labels"], labels)
        assert len(target["boxes"]) == len(boxes) == len(target["area"]) == len(target["iscrowd"])
    # what a single sample has, unmoved
    for n in range(4):
        target = dataset[n][1]
        assert np.array_equal(target["boxes"], expected_rows(coco[1], 37 + n)[0])
    again = pickle.loads(pickle.dumps(dataset))
    assert np.array_equal(again[1][1]["boxes"], dataset[1][1]["boxes"])


def test_coco_options(coco):
    contiguous = opened(coco, labels="contiguous", keypoints=True)
    assert contiguous.classes == ["kind 1", "kind 2", "kind 3"]
    assert contiguous[0][1]["labels"].tolist() == [
        a["category_id"] - 1 for a in coco[1]["annotations"] if a["image_id"] == 37
    ]
    assert contiguous[0][1]["keypoints"].shape == (9, 2, 3)
    assert len(opened(coco, skip_empty=True)) == 3
    crowds = sum(len(target["labels"]) for _, target in samples(opened(coco), T.CenterCrop(9)))
    kept = samples(opened(coco, skip_crowds=True), T.CenterCrop(9))
    left = sum(len(target["labels"]) for _, target in kept)
    assert left == crowds - sum(a["iscrowd"] for a in coco[1]["annotations"])


def test_a_missing_image_is_a_bad_sample_with_its_boxes(coco):
    dataset = opened(coco)
    (coco[0] / "1.png").unlink()  # image 39
    with pytest.raises(headrace.SampleError, match="1.png.*: cannot read it"):
        samples(dataset, T.CenterCrop(300))
    options = {"on_error": "skip", "max_bad_share": 1.0, "return_index": True}
    loader = DataLoader(dataset, 4, transform=T.CenterCrop(300), **options)
    ((_, targets, index),) = loader
    assert loader.stats()["bad_samples"] == 1 and [t["image_id"] for t in targets] != [37, 38, 39, 40]
    for target, i in zip(targets, index.tolist()):
        assert target["image_id"] == 37 + i != 39
        assert torch.equal(target["labels"], expected_rows(coco[1], 37 + i)[1])


RECIPES = {
    "flips": lambda m: [m.RandomHorizontalFlip(1), m.RandomVerticalFlip(1), m.Resize((30, 70))],
    "resize": lambda m: [m.Resize((33, 41)), m.Resize(50, max_size=77), m.CenterCrop(20)],
    "crop": lambda m: [m.CenterCrop((36, 44)), m.RandomHorizontalFlip(1)],
    "pad": lambda m: [m.Pad((3, 5, 7, 9)), m.Resize((50, 50)), m.SanitizeBoundingBoxes(6, 50)],
    "whole": lambda m: [m.RandomShortestSize(31, 40), m.ClampBoundingBoxes(), m.CenterCrop(25)],
    "colours": lambda m: [m.RandomPhotometricDistort(), m.RandomVerticalFlip(1), m.CenterCrop(30)],
    "dropped": lambda m: [m.CenterCrop(30), m.SanitizeBoundingBoxes(), m.RandomHorizontalFlip(1)],
}


@pytest.mark.parametrize("recipe", RECIPES)
def test_boxes_move_as_torchvisions(coco, v2, recipe):
    from torchvision import tv_tensors

    dataset = opened(coco, keypoints=True)
    theirs = v2.Compose(RECIPES[recipe](v2))
    for n, (_, target) in enumerate(samples(dataset, T.Compose(RECIPES[recipe](T)))):
        boxes, labels = expected_rows(coco[1], 37 + n)
        size = boxes.canvas_size
        of_image = [a["keypoints"] for a in coco[1]["annotations"] if a["image_id"] == 37 + n]
        points = torch.tensor(of_image).reshape(-1, 2, 3)
        expected = {"boxes": boxes, "labels": torch.arange(len(labels))}
        expected["keypoints"] = tv_tensors.KeyPoints(points[..., :2].clone(), canvas_size=size)
        _, expected = theirs(torch.zeros((3, *size), dtype=torch.uint8), expected)
        kept = expected["labels"]
        assert torch.equal(target["labels"], labels[kept])
        assert torch.equal(target["boxes"], expected["boxes"].as_subclass(torch.Tensor))
        moved = expected["keypoints"].as_subclass(torch.Tensor)
        moved = moved if len(moved) == len(kept) else moved[kept]  # they are not sanitized
        assert torch.equal(target["keypoints"][..., :2], moved)
        assert torch.equal(target["keypoints"][..., 2], points[kept, :, 2])


def test_iou_crop_draws_as_torchvisions(coco, v2):
    from torchvision import tv_tensors

    runs = 250
    boxes, _ = expected_rows(coco[1], 37)
    height, width = boxes.canvas_size
    rows = {"boxes": boxes, "labels": torch.arange(9)}
    dataset = headrace.ImageList([(coco[0] / "3.png", 0)] * runs, rows=[rows] * runs)
    transform = T.Compose([T.RandomIoUCrop(), T.SanitizeBoundingBoxes(), T.Resize((10, 10))])
    ours = [len(target["labels"]) for _, target in samples(dataset, transform)]
    theirs = []
    crop, sanitize = v2.RandomIoUCrop(), v2.SanitizeBoundingBoxes()
    image = torch.zeros((3, height, width), dtype=torch.uint8)
    torch.manual_seed(1)
    for _ in range(runs):
        target = {"boxes": tv_tensors.wrap(boxes.clone(), like=boxes), "labels": torch.arange(9)}
        theirs.append(len(sanitize(crop(image, target))[1]["labels"]))
    mine, other = np.array(ours, float), np.array(theirs, float)
    spread = np.sqrt((mine.var() + other.var()) / runs)
    assert abs(mine.mean() - other.mean()) < 5 * spread
    assert abs((mine == 9).mean() - (other == 9).mean()) < 5 * np.sqrt(0.5 / runs)


def test_the_ssd_preset_runs_natively(coco, v2):
    preset = v2.Compose(
        [
            v2.ToImage(),
            v2.RandomPhotometricDistort(),
            v2.RandomZoomOut(fill=[123.0, 117.0, 104.0]),
            v2.RandomIoUCrop(),
            v2.RandomHorizontalFlip(0.5),
            v2.Resize((50, 60), antialias=False),
            v2.ToDtype(torch.float32, scale=True),
            v2.ConvertBoundingBoxFormat("XYXY"),
            v2.SanitizeBoundingBoxes(),
            v2.ToPureTensor(),
        ]
    )
    loader = DataLoader(opened(coco), 4, shuffle=True, transform=preset)
    rows = 0
    for epoch in range(20):
        loader.set_epoch(epoch)
        for images, targets in loader:
            assert images.shape == (4, 3, 50, 60) and images.dtype == torch.float32
            for target in targets:
                boxes = target["boxes"]
                rows += len(boxes)
                assert len(boxes) == len(target["labels"]) == len(target["area"])
                assert (boxes >= 0).all() and (boxes[:, 2] <= 60).all() and (boxes[:, 3] <= 50).all()
                assert (boxes[:, 2:] - boxes[:, :2] >= 1).all()
    assert rows


def test_what_cannot_move_boxes_is_refused(coco):
    for transform, words in [
        (T.ElasticTransform(), "ElasticTransform"),
        (T.RandAugment(), "RandAugment"),
        (T.Pad(2, padding_mode="edge"), "padding that repeats pixels"),
    ]:
        with pytest.raises(ValueError, match=words):
            list(DataLoader(opened(coco), 2, transform=T.Compose([transform, T.CenterCrop(9)])))
    images = headrace.ImageList([(coco[0] / "0.png", 0)])
    with pytest.raises(ValueError, match="RandomIoUCrop.*has no boxes"):
        list(DataLoader(images, 1, transform=T.Compose([T.RandomIoUCrop(), T.Resize((9, 9))])))


def test_bad_annotations_are_named(coco):
    whole = dict(coco[1])
    whole["annotations"] = [dict(whole["annotations"][0], id=7, bbox=[1, 2, float("nan"), 4])]
    (coco[0] / "instances.json").write_text(json.dumps(whole))
    with pytest.raises(ValueError, match=r"annotation 7 of image 39: its bbox \(1, 2, nan, 4\)"):
        opened(coco)
    (coco[0] / "instances.json").write_text(json.dumps(coco[1])[:-20])
    with pytest.raises(ValueError, match="instances.json: at byte"):
        opened(coco)
    with pytest.raises(ValueError, match="target_transform is not supported"):
        opened(coco, target_transform=len)
    with pytest.raises(ValueError, match="labels must be"):
        opened(coco, labels="raw")


POLYGONS = [[3.0, 4.5, 20, 4.5, 20, 30], [5, 5, 6, 6, 7, 5]]
RLE = {"size": [75, 50], "counts": "Yc:1_1O1O\\\\]}\"[{2N2O"}  # as pycocotools encodes it
COUNTS = {"size": [75, 50], "counts": [272, 2, 4, 4, 4, 4, 2, 9, 1, 2, 3449]}  # of crowds


@pytest.mark.parametrize("masks", [POLYGONS, RLE, COUNTS, [], None])
def test_coco_segmentations_are_skipped(coco, masks):
    """Polygons and both kinds of RLE, wherever they stand: the same boxes as without."""
    without = [target for _, target in samples(opened(coco), T.CenterCrop(9))]
    whole = dict(coco[1])
    whole["annotations"] = [
        {"segmentation": masks, **a} if n % 2 else {**a, "segmentation": masks}
        for n, a in enumerate(whole["annotations"])
    ]
    (coco[0] / "instances.json").write_text(json.dumps(whole))
    found = [target for _, target in samples(opened(coco), T.CenterCrop(9))]
    for one, other in zip(found, without, strict=True):
        assert list(one) == list(other) and all(torch.equal(one[k], other[k]) for k in one)


def test_coco_ids_are_unique(coco):
    for name, words in (
        ("images", r"two images have the id 37: 3\.png and 3\.png"),
        ("annotations", "two annotations have the id 18"),
    ):
        whole = dict(coco[1])
        whole[name] = [*whole[name], whole[name][-1]]
        (coco[0] / "instances.json").write_text(json.dumps(whole))
        with pytest.raises(ValueError, match=f"instances.json: {words}"):
            opened(coco)


XML = """<annotation><filename>1.jpg</filename><size><width>9</width></size>
<object><name>person</name><difficult>1</difficult><bndbox><xmin>3</xmin><ymin>4.5</ymin>
<xmax>20</xmax><ymax>30</ymax></bndbox>
<part><name>head</name><bndbox><xmin>5</xmin><ymin>5</ymin><xmax>6</xmax><ymax>6</ymax></bndbox></part>
</object><object><name>aeroplane</name><truncated>1</truncated><pose>Left</pose>
<bndbox><xmax>8</xmax><xmin>1</xmin><ymin>2</ymin><ymax>9</ymax></bndbox></object></annotation>"""


@pytest.fixture
def voc(tmp_path):
    place = tmp_path / "VOCdevkit" / "VOC2012"
    for folder in ("ImageSets/Main", "Annotations", "JPEGImages"):
        (place / folder).mkdir(parents=True)
    (place / "ImageSets/Main/train.txt").write_text("a\nb -1\n")
    for name in "ab":
        picture(place / f"JPEGImages/{name}.jpg", 40, 50)
    (place / "Annotations/a.xml").write_text(XML)
    (place / "Annotations/b.xml").write_text("<annotation></annotation>")
    return tmp_path


def test_voc(voc):
    dataset = headrace.VOCDetection(voc, transform=T.Resize((40, 50)))
    (_, first), (_, second) = samples(dataset, None)
    assert first["boxes"].tolist() == [[3, 4.5, 20, 30], [1, 2, 8, 9]]
    assert first["labels"].tolist() == [15, 1]
    assert first["difficult"].tolist() == [1, 0] and first["truncated"].tolist() == [0, 1]
    assert second["boxes"].shape == (0, 4)
    assert dataset.classes[15] == "person"
    assert len(pickle.loads(pickle.dumps(dataset))) == 2


def test_voc_refuses(voc):
    file = voc / "VOCdevkit/VOC2012/Annotations/b.xml"
    for text, words in [
        ('<!DOCTYPE a [<!ENTITY x "y">]><annotation>&x;</annotation>', "declares a document type"),
        ("<annotation><object>", "no element found"),
        (XML.replace("aeroplane", "kite"), "b.xml: object 2: 'kite' is none of the classes"),
        (XML.replace("<xmin>1</xmin>", ""), "object 2 has no xmin"),
        (XML.replace("<xmin>1</xmin>", "<xmin>9</xmin>"), "object 2: the box .* is inverted"),
        (XML.replace("<xmin>1</xmin>", "<xmin>nan</xmin>"), "inverted or not finite"),
        (XML.replace("<xmin>1</xmin>", "<xmin>one</xmin>"), "object 2: could not convert"),
        ('<?xml version="1.0" encoding="big5"?>' + XML, "b.xml: line 1: multi-byte enc"),
        ('<?xml version="1.0" encoding="none"?>' + XML, "b.xml: line 1: unknown encoding"),
        (XML.replace("ficult>1<", f"ficult>{10**30}<"), "b.xml: object 1: one of .* is too large"),
    ]:
        file.write_text(text)
        with pytest.raises(ValueError, match=words):
            headrace.VOCDetection(voc)
    file.unlink()
    with pytest.raises(FileNotFoundError):
        headrace.VOCDetection(voc)
    with pytest.raises(ValueError, match="download is not supported"):
        headrace.VOCDetection(voc, download=True)


def test_yolo(tmp_path):
    (tmp_path / "images/train/more").mkdir(parents=True)
    (tmp_path / "labels/train/more").mkdir(parents=True)
    picture(tmp_path / "images/train/b.jpg", 40, 80)
    picture(tmp_path / "images/train/a.jpg", 40, 80)
    picture(tmp_path / "images/train/more/turned.jpg", 40, 80, orientation=6)
    (tmp_path / "labels/train/b.txt").write_text("\ufeff1 0.5 0.5 0.25 0.5\n\n0 0.125 0.25 0.25 0.5\n")
    (tmp_path / "labels/train/more/turned.txt").write_text("1 0.25 0.125 0.5 0.25\n")
    dataset = headrace.YoloDetection(tmp_path / "images/train", classes=["cat", "dog"])
    found = [target for _, target in samples(dataset, T.Resize((40, 80)))]
    assert [len(target["boxes"]) for target in found] == [0, 2, 1]
    assert found[1]["boxes"].tolist() == [[30, 10, 50, 30], [0, 0, 20, 20]]
    assert found[1]["labels"].tolist() == [1, 0]
    # displayed, it is 40 wide and 80 high, and the box in its upper left corner: 0, 0, 20, 20
    assert found[2]["boxes"].tolist() == [[0, 20, 20, 40]]
    shown = DataLoader(
        dataset, 3, transform=T.Resize((80, 40)), sampler=[2], apply_exif_orientation=True
    )
    assert next(iter(shown))[1][0]["boxes"].tolist() == [[0, 0, 20, 20]]
    assert len(pickle.loads(pickle.dumps(dataset))) == 3
    (tmp_path / "images/train/more/up").symlink_to("..")  # a loop of links, which is not followed
    assert len(headrace.YoloDetection(tmp_path / "images/train")) == 3
    for text, words in [
        ("1e30 0.5 0.5 0.1 0.1", "line 1: 1e30 is no class"),
        ("\xff", "line 1: it must be class x y width height"),
        ("1 0.5 0.5 0.1", "line 1: it must be class x y width height"),
        ("0 1 2 3 4\n2 0.5 0.5 0.1 0.1", "line 2: class 2 of 2"),
        ("1 0.5 0.5 -0.1 0.1", "line 1: the box .* is inverted"),
        ("1 nan 0.5 0.1 0.1", "line 1: .*not finite"),
        ("0 0.5 0.5 1e300 0.1", "line 1: .*not finite"),  # as float32
        ("1.5 0.5 0.5 0.1 0.1", "1.5 is no class"),
    ]:
        (tmp_path / "labels/train/b.txt").write_bytes(text.encode("latin1"))
        with pytest.raises(ValueError, match=words):
            headrace.YoloDetection(tmp_path / "images/train", classes=["cat", "dog"])
    with pytest.raises(FileNotFoundError):
        headrace.YoloDetection(tmp_path / "nothing/images")
    with pytest.raises(FileNotFoundError, match="give labels="):
        headrace.YoloDetection(tmp_path / "images/train", tmp_path / "other")


def test_open_images(tmp_path):
    picture(tmp_path / "b0.jpg", 40, 80)
    picture(tmp_path / "a1.jpg", 20, 10)
    head = "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded,IsTruncated,IsGroupOf"
    lines = ["b0,x,m2,1,0.25,0.5,0,0.5,0,0,1", "a1,x,m1,1,0,1,0,1,0,0,0"]
    lines += ["b0,x,m1,1,0,0.125,0.5,1,0,0,0"]
    file = tmp_path / "boxes.csv"
    file.write_text("\ufeff" + "\n".join([head, *lines]))  # as spreadsheets save it
    dataset = headrace.OpenImagesDetection(tmp_path, file)
    assert dataset.classes == ["m1", "m2"]
    (_, first), (_, second) = samples(dataset, T.Compose([T.CenterCrop((40, 80))]))
    assert second["boxes"].tolist() == [[20, 0, 40, 20], [0, 20, 10, 40]]
    assert second["labels"].tolist() == [1, 0] and second["is_group_of"].tolist() == [1, 0]
    assert len(first["boxes"]) == 1
    (tmp_path / "names.csv").write_text("\ufeffLabelName,DisplayName\nm2,Dog\nm1,Cat\n")
    named = headrace.OpenImagesDetection(tmp_path, file, classes=tmp_path / "names.csv")
    assert named.classes == ["Dog", "Cat"] and named[1][1]["labels"].tolist() == [0, 1]
    for text, words in [
        ("ImageID,XMin\n", "no column LabelName"),
        (head + "\nb0,x,m2,1,0.25,zero,0,0.5,0,0,1", "line 2: a number is missing or damaged"),
        (head + "\nb0,x,m2,1,0.5,0.25,0,0.5,0,0,1", "line 2: the box .* is inverted"),
        (head + "\nb0,x,m3,1,0.2,0.25,0,0.5,0,0,1", "line 2: m3 is none of the classes"),
    ]:
        file.write_text(text)
        with pytest.raises(ValueError, match=words):
            headrace.OpenImagesDetection(tmp_path, file, classes=tmp_path / "names.csv")
    for damage, words in [
        (b"\xff", "boxes.csv: after line 0: .*can't decode"),
        (b'"' + b"x" * 200, "boxes.csv: line 2: a quote does not end"),
    ]:
        file.write_bytes(head.encode() + b"\n" + damage)
        with pytest.raises(ValueError, match=words):
            headrace.OpenImagesDetection(tmp_path, file)
    file.write_text("\n".join([head, *lines]))
    (tmp_path / "names.csv").write_bytes(b"m1,\xff\n")
    with pytest.raises(ValueError, match="names.csv: .*can't decode"):
        headrace.OpenImagesDetection(tmp_path, file, classes=tmp_path / "names.csv")


def mutated(data, rng):
    """Bytes of the file changed, left out, doubled, or in place of a number another one."""
    for _ in range(rng.integers(1, 4)):
        at, n = int(rng.integers(len(data) + 1)), int(rng.integers(1, 9))
        piece = [bytes(rng.integers(0, 256, n, dtype=np.uint8)), b"", 2 * data[at : at + n],
                 rng.choice([b"-1", b"1e999", b"nan", b"9" * 30, b'"', b"\n"])][rng.integers(4)]  # fmt: skip
        data = data[:at] + bytes(piece) + data[at + n :]
    return data


@pytest.mark.parametrize("count", [300, pytest.param(4_000, marks=pytest.mark.long)])
def test_damaged_annotations_end_in_an_error(voc, tmp_path, count):
    """Any damage of files that Python parses: a dataset, or an error that names file and place."""
    (tmp_path / "images").mkdir()
    (tmp_path / "labels").mkdir()
    picture(tmp_path / "images/b0.jpg", 40, 80)
    head = "ImageID,Source,LabelName,XMin,XMax,YMin,YMax,IsGroupOf\n"
    xml = voc / "VOCdevkit/VOC2012/Annotations/b.xml"
    listed = voc / "VOCdevkit/VOC2012/ImageSets/Main/train.txt"
    txt, table, names = (tmp_path / name for name in ("labels/b0.txt", "boxes.csv", "names.csv"))
    good = {xml: XML.encode(), listed: b"a\nb -1\n", names: b"m2,Dog\nm1,Cat\n",
            txt: b"1 0.5 0.5 0.25 0.5\n0 0.125 0.25 0.25 0.5\n",
            table: (head + "b0,x,m2,0.25,0.5,0,0.5,1\n" * 3).encode()}  # fmt: skip
    kinds = {
        xml: lambda: headrace.VOCDetection(voc),
        listed: lambda: headrace.VOCDetection(voc),
        txt: lambda: headrace.YoloDetection(tmp_path / "images"),
        table: lambda: headrace.OpenImagesDetection(tmp_path / "images", table),
        names: lambda: headrace.OpenImagesDetection(tmp_path / "images", table, classes=names),
    }
    place = re.compile(r"(object|line|column|byte) \d+|larger than|has no column|names no image")
    for file, data in good.items():
        file.write_bytes(data)
    for file, open_it in kinds.items():
        rng, opened = np.random.default_rng(5), 0
        for _ in range(count):
            file.write_bytes(mutated(good[file], rng))
            try:
                opened += len(open_it()) > 0
            except FileNotFoundError as error:  # the name of an image or of a file was damaged
                assert str(tmp_path) in str(error)
            except ValueError as error:
                # of a damaged list of classes: the line that has a box of a missing one
                assert str(table if file == names else file) in str(error) or str(names) in str(error)
                assert place.search(str(error)), error
        assert 0 < opened < count, file
        file.write_bytes(good[file])


@pytest.mark.parametrize("kind", ["xml", "txt", "csv"])
def test_annotations_as_bombs(voc, tmp_path, kind):
    """What would take memory or time without end is refused, and the message stays short."""
    (tmp_path / "labels").mkdir()
    (tmp_path / "images").mkdir()
    picture(tmp_path / "images/b0.jpg", 40, 80)
    xml = voc / "VOCdevkit/VOC2012/Annotations/b.xml"
    txt, table, names = tmp_path / "labels/b0.txt", tmp_path / "boxes.csv", tmp_path / "names.csv"
    laughs = "".join(f'<!ENTITY l{i + 1} "{f"&l{i};" * 10}">' for i in range(9))
    head = "ImageID,LabelName,XMin,XMax,YMin,YMax"
    row, long = "\nb0,m2,0.25,0.5,0,0.5", "9" * (15 << 20)
    bombs = {
        "xml": (xml, lambda: headrace.VOCDetection(voc), [
            (f'<!DOCTYPE a [<!ENTITY l0 "lol">{laughs}]><a>&l9;</a>', "line 1: it declares a docum"),
            ("<a>" * (5 << 20), "line 1: it nests more than 64"),
            (XML.replace("aeroplane", "x" * (15 << 20)), "object 2: 'xxx.* is none of the classes"),
            (XML.replace("<xmin>1<", f"<xmin>1{long}<"), "object 2: .* is inverted or not finite"),
            (XML.replace("ficult>1<", f"ficult>{long}<"), "object 1: Exceeds the limit"),
            (XML.replace("<part>", f'<part a="{long}" b="{long}">'), "larger than 16 MiB"),
        ]),
        "txt": (txt, lambda: headrace.YoloDetection(tmp_path / "images"), [
            (f"1 0.5 0.5 0.25 0.5\n1 {long}", "line 2 is longer than 1048576"),
            ("1 " * 400_000, "line 1: it must be class x y width height, got '1 1 "),
            ("1" * 300 + " 0.5 0.5 0.25 0.5", "line 1: 1111.* is no class"),
        ]),
        "csv": (table, lambda: headrace.OpenImagesDetection(
                tmp_path / "images", table, classes=names if names.exists() else None), [
            (f"{head}{row}\n{long}", "line 3 is longer than 1048576"),
            (head + "," * (2 << 20), "line 1 is longer than"),
            (f'{head}{row},"\n",' * 9, "line 2: a quote does not end"),
            (f'{head}\n"{"x" * 200_000}",m2,0,1,0,1', "line 2: field larger than"),
        ]),
    }  # fmt: skip
    file, open_it, cases = bombs[kind]
    for text, words in cases:
        file.write_text(text)
        with pytest.raises(ValueError, match=words) as caught:
            open_it()
        assert str(file) in str(caught.value) and len(str(caught.value)) < 1000
    if kind == "csv":
        table.write_text(head + row)
        names.write_text('m2,"' + "x" * 200_000)
        with pytest.raises(ValueError, match="names.csv: line 1: a quote does not end"):
            open_it()
