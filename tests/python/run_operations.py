"""Operations of the C library with given parameters, for comparisons with torchvision's kernels."""

import headrace.transforms as T


class Raw(T.Transform):
    """An operation of the C library, by its name, with its parameters."""

    __module__ = "headrace.transforms"  # so that it is taken for one
    _is_random = True

    def __init__(self, name, **parameters):
        self.name, self.parameters = name, parameters

    def _operations(self):
        return [(self.name, self.parameters)]
