"""Rotations, affine and perspective maps of boxes and key points: as torchvision moves them."""

import pytest
import torch

import headrace
import headrace.transforms as T
from headrace.torch import DataLoader
from test_detection import picture

HEIGHT, WIDTH = 61, 84
NEAR = {"rtol": 0, "atol": 1e-4}
BOXES = torch.tensor(
    [
        [0, 0, WIDTH, HEIGHT],
        [1.5, 2.25, 20, 30.5],
        [60, 40, 84, 61],
        [30, 20, 30.5, 20.5],
        [0, 50, 9, 61],
    ]
)
POINTS = torch.tensor([[[x, y, 2.0] for x in (0, 40.5, WIDTH - 1)] for y in (0, 7.25, 30, 50, 60)])


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("warps") / "one.png"
    picture(path, HEIGHT, WIDTH)
    return path


def ours(path, *transforms, count=1, size=(50, 60)):
    """The rows that are left of one image, `count` times."""
    rows = {"boxes": BOXES, "keypoints": POINTS, "labels": torch.arange(len(BOXES))}
    finish = [T.Resize(size, antialias=False), T.SanitizeBoundingBoxes()]
    dataset = headrace.ImageList([path] * count, T.Compose([*transforms, *finish]), rows=[rows] * count)
    with DataLoader(dataset, count) as loader:
        _, targets = next(iter(loader))
    return list(targets)


def theirs(v2, *transforms, size=(50, 60)):
    from torchvision import tv_tensors

    canvas = {"canvas_size": (HEIGHT, WIDTH)}
    target = {
        "boxes": tv_tensors.BoundingBoxes(BOXES.clone(), format="XYXY", **canvas),
        "keypoints": tv_tensors.KeyPoints(POINTS[..., :2].clone(), **canvas),
        "labels": torch.arange(len(BOXES)),
    }
    image = torch.zeros(3, HEIGHT, WIDTH, dtype=torch.uint8)
    warped, moved = v2.Compose(transforms)(image, target)
    # torchvision may count the pixels of an expanded canvas otherwise than those of its image
    height, width = warped.shape[1:]
    for name, kind in (("boxes", tv_tensors.BoundingBoxes), ("keypoints", tv_tensors.KeyPoints)):
        beside = {"format": "XYXY"} if name == "boxes" else {}
        moved[name] = kind(moved[name], canvas_size=(height, width), **beside)
    _, moved = v2.Resize(size, antialias=False)(warped, moved)
    boxes, labels = moved["boxes"], moved["labels"]
    kept = v2.SanitizeBoundingBoxes()(image, {"boxes": boxes, "labels": labels})[1]["labels"]
    return {
        "boxes": boxes.as_subclass(torch.Tensor)[kept],
        "keypoints": moved["keypoints"].as_subclass(torch.Tensor)[kept],
        "labels": kept,
    }


def assert_near(found, expected):
    assert torch.equal(found["labels"], expected["labels"])
    assert 0 < len(found["labels"]) <= len(BOXES)
    torch.testing.assert_close(found["boxes"], expected["boxes"], **NEAR)
    torch.testing.assert_close(found["keypoints"][..., :2], expected["keypoints"], **NEAR)
    assert (found["keypoints"][..., 2] == 2).all()


@pytest.mark.parametrize("center", [None, (10, 50)])
@pytest.mark.parametrize("angle", [0, 33, 90, -120, 180, 270])
@pytest.mark.parametrize("expand", [False, True])
def test_rotations(path, v2, angle, expand, center):
    if center and expand:
        pytest.skip("torchvision's boxes and pixels go apart there")
    arguments = {"degrees": (angle, angle), "expand": expand, "center": center}
    (found,) = ours(path, T.RandomRotation(**arguments))
    assert_near(found, theirs(v2, v2.RandomRotation(**arguments)))


@pytest.mark.parametrize(
    "arguments",
    [
        {"degrees": (20, 20)},
        {"degrees": (0, 0), "scale": (0.5, 0.5)},
        {"degrees": (-75, -75), "scale": (1.3, 1.3), "shear": (10, 10, -8, -8)},
        {"degrees": (5, 5), "shear": (30, 30), "center": (3, 4)},
        {"degrees": (0, 0)},
    ],
)
def test_affine_maps(path, v2, arguments):
    (found,) = ours(path, T.RandomAffine(**arguments))
    assert_near(found, theirs(v2, v2.RandomAffine(**arguments)))


def test_translations_are_of_pixels(path, v2):
    """The drawn shift is read from the points, and moves the boxes as torchvision's."""
    for target in ours(path, T.RandomAffine(0, translate=(0.3, 0.2)), count=20, size=(HEIGHT, WIDTH)):
        moved = target["keypoints"][0] - POINTS[int(target["labels"][0])]
        by = [round(float(v)) for v in moved[0, :2]]
        assert abs(by[0]) <= 0.3 * WIDTH and abs(by[1]) <= 0.2 * HEIGHT
        shift = lambda x: v2.functional.affine(x, 0, by, 1.0, [0.0, 0.0])  # noqa: E731
        assert_near(target, theirs(v2, v2.Lambda(shift, *moving()), size=(HEIGHT, WIDTH)))


def moving():
    from torchvision import tv_tensors

    return torch.Tensor, tv_tensors.BoundingBoxes, tv_tensors.KeyPoints


def test_perspectives(path, v2):
    """The drawn corners are read from the points at the corners."""
    corners = [[0, 0], [WIDTH - 1, 0], [WIDTH - 1, HEIGHT - 1], [0, HEIGHT - 1]]
    points = torch.tensor([[[*corner, 1.0] for corner in corners]]).float()
    rows = {"boxes": BOXES[:1], "keypoints": points}
    transform = T.Compose([T.RandomPerspective(0.6, p=1), T.CenterCrop((HEIGHT, WIDTH))])
    count = 20
    dataset = headrace.ImageList([path] * count, transform, rows=[rows] * count)
    with DataLoader(dataset, count) as loader:
        drawn = next(iter(loader))[1].flat["keypoints"][..., :2]
    found = ours(path, T.RandomPerspective(0.6, p=1), count=count, size=(HEIGHT, WIDTH))
    assert (drawn - drawn.round()).abs().max() < 1e-3
    for corner, target in zip(drawn.round().int().tolist(), found, strict=True):
        warp = lambda x: v2.functional.perspective(x, corners, corner)  # noqa: E731
        assert_near(target, theirs(v2, v2.Lambda(warp, *moving()), size=(HEIGHT, WIDTH)))
