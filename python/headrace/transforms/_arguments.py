"""Checks of arguments that several transforms share, and the numbers of enumerators."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# enum hr_dtype
DTYPES = {"uint8": 0, "float16": 1, "half": 1, "bfloat16": 2, "float32": 3, "float": 3}
# enum hr_interpolation
INTERPOLATIONS = {
    "bilinear": 0,
    "bicubic": 1,
    "nearest": 2,
    "nearest-exact": 3,
    "nearest-pillow": 4,
}
# enum hr_padding_mode
PADDING_MODES = {"constant": 0, "edge": 1, "reflect": 2, "symmetric": 3}


def dtype_name(dtype: Any, who: str) -> str:
    """Returns 'uint8', 'float16', 'bfloat16' or 'float32' for a torch or NumPy dtype or a name."""
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", None)
    if not isinstance(name, str):
        name = getattr(dtype, "__name__", None) or str(dtype)
    name = name.removeprefix("torch.")
    if name not in DTYPES:
        raise ValueError(
            f"{who}: dtype must be uint8, float16, bfloat16 or float32, got {dtype!r}"
        )
    return {"half": "float16", "float": "float32"}.get(name, name)


def integer(what: str, value: Any, least: int, most: int = 2**31 - 1) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{what} must be a whole number, got {value!r}") from None
    if isinstance(value, bool) or not least <= number <= most:
        limits = f"at least {least}" if number < least else f"at most {most}"
        raise ValueError(f"{what} must be a whole number of {limits}, got {value!r}")
    return number


def numbers(what: str, values: Any) -> tuple[float, ...]:
    try:
        return tuple(float(v) for v in values)
    except (TypeError, ValueError):
        raise TypeError(f"{what} must be numbers, got {values!r}") from None


def size(who: str, size: Any) -> tuple[int, int]:
    if isinstance(size, Iterable) and not isinstance(size, (str, bytes)):
        values = tuple(integer(f"{who}: size", v, 1) for v in size)
        if len(values) not in (1, 2):
            raise ValueError(f"{who}: size must be one number or (height, width), got {size!r}")
        return values[0], values[-1]
    value = integer(f"{who}: size", size, 1)
    return value, value


def pair(what: str, values: Any) -> tuple[float, float]:
    if not isinstance(values, Iterable) or len(both := numbers(what, values)) != 2:
        raise TypeError(f"{what} must be two numbers, got {values!r}")
    return both[0], both[1]


def channels(what: str, values: Any) -> tuple[float, float, float]:
    if isinstance(values, Mapping):
        raise TypeError(f"{what} must be one number or three, got {values!r}")
    found = numbers(what, values if isinstance(values, Iterable) else (values,))
    if len(found) == 1:
        found *= 3
    if len(found) != 3:
        raise ValueError(f"{what} must be one number or three (images are RGB), got {values!r}")
    return found[0], found[1], found[2]


def padding(who: str, padding: Any) -> tuple[int, int, int, int]:
    if not isinstance(padding, Iterable):
        padding = (padding,)
    p = tuple(integer(f"{who}: padding", v, 0) for v in padding)
    if len(p) not in (1, 2, 4):
        raise ValueError(
            f"{who}: padding must be one number, (left and right, top and bottom) or "
            f"(left, top, right, bottom), got {padding!r}"
        )
    return (p * (4 // len(p)))[:4]  # type: ignore[return-value]


def probability(who: str, p: Any) -> float:
    if isinstance(p, bool) or not isinstance(p, (int, float)) or not 0 <= p <= 1:
        raise ValueError(f"{who}: p must be a probability between 0 and 1, got {p!r}")
    return float(p)


def jitter(
    what: str, value: Any, center: float, bound: tuple[float, float]
) -> tuple[float, float] | None:
    if value is None:
        return None
    if isinstance(value, (int, float)):
        if value < 0:
            raise ValueError(f"ColorJitter: {what} as one number must not be negative, got {value}")
        low = center - value
        both = (max(low, 0.0) if center else low, center + value)
    else:
        both = pair(f"ColorJitter: {what}", value)
    if not bound[0] <= both[0] <= both[1] <= bound[1]:
        raise ValueError(
            f"ColorJitter: {what} must lie within {bound[0]:g} to {bound[1]:g}, smaller first, "
            f"got {value!r}"
        )
    return None if both == (center, center) else (float(both[0]), float(both[1]))


def padding_mode(who: str, mode: Any) -> str:
    if mode not in PADDING_MODES:
        raise ValueError(
            f"{who}: padding_mode must be one of {', '.join(PADDING_MODES)}, got {mode!r}"
        )
    return str(mode)


def interpolation(who: str, value: Any, among: Sequence[str] = tuple(INTERPOLATIONS)) -> str:
    """Returns the name of torchvision's InterpolationMode, of a string or of PIL's number."""
    plain = getattr(value, "value", value)  # of an enum member
    if isinstance(plain, str):
        plain = plain.lower()
    if isinstance(plain, bool) or not isinstance(plain, (str, int)):
        plain = None
    name = {0: "nearest", 2: "bilinear", 3: "bicubic"}.get(plain, plain)  # PIL's numbers
    if name not in among:
        raise ValueError(f"{who}: interpolation must be {' or '.join(among)}, got {value!r}")
    return str(name)


def fill(who: str, fill: Any) -> tuple[float, float, float]:
    """Reads one number, three, or None, which is black."""
    return channels(f"{who}: fill", 0 if fill is None else fill)


def within(what: str, value: Any, low: float, high: float = math.inf) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        limits = f"at least {low:g}" if high == math.inf else f"between {low:g} and {high:g}"
        raise ValueError(f"{what} must be a number {limits}, got {value!r}")
    return float(value)
