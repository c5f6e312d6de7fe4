"""Measures what preparing the script's files with Headrace would cost.

Some of the files are read, converted to every form in memory and prepared on this thread. The
thread's CPU time is measured, which other load does not change. The forms alternate file by file,
so that they are compared on the same files under the same conditions. A file that cannot be
converted (a PNG has no coefficients) is used unchanged in every form, as in a cache. Bytes are
those of the converted files, scaled by the ratio of all files' sizes to theirs.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from .. import _core, transforms
from ..forms import WAVEFORMS, Converter, convert
from ..prepare import Preparer

if TYPE_CHECKING:
    from ..forms import Form

MOST_FILES = 200
MOST_SIZES = 2000
MOST_BYTES = 48 << 20
MOST_CONVERTED_BYTES = 256 << 20
# Share of the time for converting; the rest is for preparing.
CONVERTING = 0.5
WARM_UP_FILES = 4
RECIPE_CHARACTERS = 250

_Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]


@dataclass
class _Form:
    name: Form
    items: list[bytes] = field(default_factory=list)
    converted: int = 0
    cpu_s: float = 0.0
    prepared: int = 0


def headrace_cost(
    paths: Iterable[_Path], transform: Any, seconds: float = 1.5
) -> dict[str, Any]:
    """Measures CPU seconds and bytes of one sample in every form, for a record's ``headrace``.

    Args:
        paths: files of images or sounds; if there are many, some are chosen at random.
        transform: the script's transform, which Headrace must support (see
            :mod:`headrace.stalls.replaceable`).
        seconds: the approximate duration; it includes at least one pass over the files.

    Returns only ``{"reason": text}`` if the transform cannot prepare most of the files.
    """
    begin = time.perf_counter()
    known = list(paths)
    preparer, recipe = Preparer(transform), _one_line(transforms.Compose([transform]))
    files, problem = _read(known, preparer)
    if not files:
        return {"reason": problem}
    forms = _converted(files, _conversions(preparer), begin + CONVERTING * seconds)
    _prepare(forms, preparer, begin + seconds)
    scale = _mean_size(known) / _mean(map(len, forms[0].items))
    return {
        "recipe": recipe,
        "forms": [
            {
                "form": form.name,
                "cpu_s": form.cpu_s / form.prepared,
                "bytes": scale * _mean(map(len, form.items)),
            }
            for form in forms
        ],
    }


def _one_line(compose: transforms.Compose) -> str:
    text = ", ".join(map(repr, compose.transforms))
    return text if len(text) <= RECIPE_CHARACTERS else text[: RECIPE_CHARACTERS - 3] + "..."


def _mean(numbers: Iterable[int]) -> float:
    values = list(numbers)
    return sum(values) / len(values)


def _mean_size(paths: Sequence[_Path]) -> float:
    sizes = []
    for path in random.Random(1).sample(paths, min(len(paths), MOST_SIZES)):
        try:
            sizes.append(os.stat(path).st_size)
        except OSError:
            continue
    return _mean(sizes)


def _read(paths: Sequence[_Path], preparer: Preparer) -> tuple[list[bytes], str]:
    """Reads files that can be prepared, in random order. Returns their bytes and "", or an empty
    list and the reason."""
    chosen = random.Random(0).sample(paths, min(len(paths), MOST_FILES))
    files: list[bytes] = []
    total = refused = 0
    problem = "there are no files"
    for path in chosen:
        try:
            with open(path, "rb") as file:
                data = file.read()
            preparer(data)
        except (OSError, ValueError, NotImplementedError) as error:
            refused += 1
            problem = f"{os.fsdecode(path)}: {error}"
            continue
        files.append(data)
        total += len(data)
        if total >= MOST_BYTES:
            break
    if refused > len(files):
        return [], f"{refused} of {refused + len(files)} files cannot be prepared: {problem}"
    return files, problem


def _conversions(preparer: Preparer) -> dict[Form, Callable[[bytes], bytes]]:
    """Returns how a file becomes an item of each form that gives the same batches. A waveform holds
    what the transform does first."""
    head = preparer.sound_head
    if head is not None:
        mono, rate = head
        return {"waveform": lambda data: convert(data, "waveform", mono=mono, rate=rate)}
    converter = Converter()
    images = [name for name in _core.forms if name not in (*WAVEFORMS, "encoded")]
    return {name: partial(converter.convert, form=name) for name in images}


def _converted(
    files: list[bytes], conversions: dict[Form, Callable[[bytes], bytes]], until: float
) -> list[_Form]:
    """Converts as many files as time and memory allow, to every form that at least one of them
    has."""
    forms = [_Form("encoded"), *map(_Form, conversions)]
    total = 0
    for data in files:
        forms[0].items.append(data)
        for form in forms[1:]:
            item = data
            try:
                item = conversions[form.name](data)
                form.converted += 1
                total += len(item)
            except (ValueError, NotImplementedError):
                pass
            form.items.append(item)
        if time.perf_counter() > until or total > MOST_CONVERTED_BYTES:
            break
    return [form for form in forms if form.converted or form.name == "encoded"]


def _prepare(forms: list[_Form], preparer: Preparer, until: float) -> None:
    count = len(forms[0].items)
    for index in range(min(count, WARM_UP_FILES)):
        for form in forms:
            preparer(form.items[index])
    epoch = 0
    while True:
        for index in range(count):
            for form in forms:
                item = form.items[index]
                before = time.thread_time()
                preparer(item, epoch=epoch, index=index)
                form.cpu_s += time.thread_time() - before
                form.prepared += 1
            if epoch and time.perf_counter() > until:
                return
        epoch += 1
        if time.perf_counter() > until:
            return
