"""A transform in two parts: the head, which the C library runs, and the tail, which runs in Python.

The head is the longest beginning of the transform that the library has and that makes images of
one size. The tail gets what torchvision's transforms would have given it: a PIL image, a tv_tensor
Image or a tensor. Without a head of one size, the library decodes and the tail is everything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import _core, transforms as _transforms
from ._albumentations import as_function
from ._torchvision import Beginning, beginnings

__all__ = ["Pipeline"]


class Pipeline:
    """Runs a transform on the bytes of one image.

    It can be pickled; the copy makes its own recipe. One thread at a time may use it.

    Args:
        transform: of :mod:`headrace.transforms`, torchvision or one's own; None: only decode.
        gives_tensor: without a tail, give a tensor even where torchvision gives a PIL image.
        options: of :func:`headrace.transforms.make_recipe`.

    Raises:
        ValueError, TypeError: an option is invalid, or the transform has a part of
            :mod:`headrace.transforms`, which cannot be called, behind one that is not native.
    """

    def __init__(self, transform: Any, *, gives_tensor: bool = False, **options: Any) -> None:
        self.transform = transform
        self._gives_tensor = gives_tensor
        self._options = options
        self.head: list[Any] = []  # the transforms of the user's that run natively
        self.tail: list[Any] = []
        self._functions: list[Callable[[Any], Any]] = []  # what run_tail calls
        self.why = ""  # why the first transform of the tail is not native
        self._gives = "PIL"
        self._preparer: _core.Preparer | None = None
        self._recipe: _core.Recipe | None = None
        self._choose()

    def _choose(self) -> None:
        if self.transform is None:
            return
        _transforms.make_recipe(_transforms.Resize((1, 1)), **self._options)  # checks the options
        first: Exception | None = None
        for beginning in beginnings(self.transform, _transforms.make):
            self.why = self.why or beginning.why
            self.tail, self._gives = beginning.rest, beginning.gives
            if not beginning.theirs:
                break
            try:
                self._recipe = self._make_recipe(beginning)
            except ValueError as error:  # images of several sizes
                first = first or error
                self.why = self.why or str(error)
                continue
            self.head = beginning.theirs
            break
        self._functions = [as_function(one) for one in self.tail]
        if any(isinstance(one, _transforms.Transform) for one in self.tail):
            raise first or ValueError(
                f"{self.why}. Transforms of headrace.transforms cannot follow it, because they are "
                "not called on images: write torchvision's there"
            )

    def _make_recipe(self, beginning: Beginning) -> _core.Recipe:
        options = dict(self._options)
        self._as_pil = beginning.gives == "PIL" and (
            bool(beginning.rest) or not self._gives_tensor
        )
        if any(getattr(step, "_is_of_sounds", False) for step in beginning.steps):
            self._as_pil = False
        if self._as_pil:
            options["layout"] = "NHWC"
        return _transforms.make_recipe(beginning.steps, **options)

    @property
    def is_native(self) -> bool:
        """Whether nothing is left to Python, and the images have one size."""
        return bool(self.head) and not self.tail

    def run_head(self, data: Any, seed: int, epoch: int, index: int) -> Any:
        """Returns what the tail gets. Raises as :class:`headrace.Preparer`."""
        if self._preparer is None:
            self._preparer = _core.Preparer()
        if not self.head:
            return _pil(self._preparer.decode(data))
        row = self._preparer.run(self._recipe, data, seed, epoch, index)
        convert = _pil if self._as_pil else self._tensor
        return [convert(view) for view in row] if isinstance(row, tuple) else convert(row)

    def run_tail(self, image: Any) -> Any:
        """Applies the tail to an image, or to each view of one."""
        if isinstance(image, list):
            return [self.run_tail(view) for view in image]
        for function in self._functions:
            image = function(image)
        return image

    def whole(self) -> Callable[[Any], Any] | None:
        """Returns the transform as a function of a PIL image; None if it cannot be called."""
        if self.transform is None:
            return _same
        steps = beginnings(self.transform, _transforms.make)[-1].rest
        if any(isinstance(one, _transforms.Transform) for one in steps):
            return None
        return _InTurn([as_function(step) for step in steps])

    def _tensor(self, row: _core.Array) -> Any:
        from torch.utils.dlpack import from_dlpack

        tensor = from_dlpack(row)
        if self._gives != "Image":
            return tensor
        from torchvision import tv_tensors

        return tv_tensors.Image(tensor)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_preparer": None, "_recipe": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(  # type: ignore[misc]
            state["transform"], gives_tensor=state["_gives_tensor"], **state["_options"]
        )


class _InTurn:
    def __init__(self, steps: list[Any]) -> None:
        self._steps = steps

    def __call__(self, image: Any) -> Any:
        for step in self._steps:
            image = step(image)
        return image


def _same(image: Any) -> Any:
    return image


def _pil(pixels: _core.Array) -> Any:
    from PIL import Image

    height, width = pixels.shape[0], pixels.shape[1]
    return Image.frombytes("RGB", (width, height), memoryview(pixels))
