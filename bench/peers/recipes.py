"""The recipes of bench/augment.py, for torchvision's transforms and for Headrace's alike.

Each function takes a module with torchvision's names and returns what stands between decoding and
the conversion to floats, and what stands after Normalize.
"""

SIZE = 224


def plain(t):
    return [t.RandomResizedCrop(SIZE, antialias=True), t.RandomHorizontalFlip()], []


def randaugment(t):
    first, _ = plain(t)
    return [*first, t.RandAugment()], []


def trivialaugment(t):
    first, _ = plain(t)
    return [*first, t.TrivialAugmentWide()], []


def erasing_blur(t):
    first, _ = plain(t)
    return [*first, t.GaussianBlur(23, (0.1, 2.0))], [t.RandomErasing()]


def _dino_colors(t, blur, solarize):
    return [t.RandomHorizontalFlip(), t.RandomApply([t.ColorJitter(0.4, 0.4, 0.2, 0.1)], p=0.8),
            t.RandomGrayscale(0.2), t.RandomApply([t.GaussianBlur(23, (0.1, 2.0))], p=blur),
            *([t.RandomSolarize(128, 0.2)] if solarize else [])]


def dino(t):
    """Two global and eight local crops (Caron et al., "Emerging Properties in Self-Supervised Vision
    Transformers", 2021): the transforms of each view."""
    bicubic = 3  # PIL's number

    def crop(size, scale, blur, solarize=False):
        return [t.RandomResizedCrop(size, scale, interpolation=bicubic, antialias=True),
                *_dino_colors(t, blur, solarize)]

    local = crop(96, (0.05, 0.4), 0.5)
    return [crop(SIZE, (0.4, 1.0), 1.0), crop(SIZE, (0.4, 1.0), 0.1, True), *[local] * 8]


def crops(t):
    """The same views, only cropped, resized and flipped: what sharing a decode can save most of."""
    return [view[:2] for view in dino(t)]


RECIPES = {f.__name__: f for f in (plain, randaugment, trivialaugment, erasing_blur)}
VIEWS = {f.__name__: f for f in (dino, crops)}
