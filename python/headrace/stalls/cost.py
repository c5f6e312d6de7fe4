"""Measures what preparing the script's files with Headrace would cost.

Some of the files are read, converted to every form in memory and prepared on this thread. The
thread's CPU time is measured, which other load does not change. The forms alternate file by file,
so that they are compared on the same files under the same conditions. A file that cannot be
converted (a PNG has no coefficients) is used unchanged in every form, as in a cache.

Few files may be measured, and what they cost depends on their format: a waveform is as large as a
WAV file and many times an MP3 file. So the means are those of the formats, by the extensions of
names, weighted with the formats' shares in all files; and bytes are scaled by the ratio of all
files' sizes, of that format, to those of the files measured.
"""

from __future__ import annotations

import os
import random
import time
from collections import defaultdict
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
# Formats of which a file is measured even if time is over.
MOST_FORMATS = 8
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
    cpu_s: list[float] = field(default_factory=list)  # of each item, in all passes
    passes: list[int] = field(default_factory=list)


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
    formats = [_format(path) for path, _ in files]
    least = min(len(set(formats)), MOST_FORMATS)
    contents = [data for _, data in files]
    forms = _converted(contents, _conversions(preparer), begin + CONVERTING * seconds, least)
    _prepare(forms, preparer, begin + seconds)
    formats = formats[: len(forms[0].items)]
    sizes = _sizes(known)
    return {
        "recipe": recipe,
        "forms": [
            {
                "form": form.name,
                "cpu_s": _cpu_s(form, formats, sizes),
                "bytes": _bytes(form, forms[0], formats, sizes),
            }
            for form in forms
        ],
    }


def _one_line(compose: transforms.Compose) -> str:
    text = ", ".join(map(repr, compose.transforms))
    return text if len(text) <= RECIPE_CHARACTERS else text[: RECIPE_CHARACTERS - 3] + "..."


def _format(path: _Path) -> str:
    return os.path.splitext(os.fsdecode(path))[1].lower()


def _sizes(paths: Sequence[_Path]) -> dict[str, list[int]]:
    """Returns the sizes of many files, by format."""
    sizes = defaultdict(list)
    for path in random.Random(1).sample(paths, min(len(paths), MOST_SIZES)):
        try:
            sizes[_format(path)].append(os.stat(path).st_size)
        except OSError:
            continue
    return sizes


def _of_format(name: str, formats: list[str], values: Iterable[float]) -> list[float]:
    return [value for own, value in zip(formats, values) if own == name]


def _cpu_s(form: _Form, formats: list[str], sizes: dict[str, list[int]]) -> float:
    """Returns the time of one file, over the formats that were measured."""
    seconds = weights = 0.0
    for name in set(formats):
        weight = len(sizes.get(name, ())) or 1
        total = sum(_of_format(name, formats, form.cpu_s))
        seconds += weight * total / sum(_of_format(name, formats, form.passes))
        weights += weight
    return seconds / weights


def _bytes(
    form: _Form, encoded: _Form, formats: list[str], sizes: dict[str, list[int]]
) -> float:
    """Returns the bytes of one item. A format that was not measured grows as all together."""
    total = 0.0
    for name, of_files in sizes.items():
        own = formats if name in formats else [name] * len(formats)
        before = sum(_of_format(name, own, map(len, encoded.items)))
        total += sum(of_files) * sum(_of_format(name, own, map(len, form.items))) / before
    return total / sum(map(len, sizes.values()))


def _read(
    paths: Sequence[_Path], preparer: Preparer
) -> tuple[list[tuple[_Path, bytes]], str]:
    """Reads files that can be prepared, in random order but with one of each format first. Returns
    them and "", or an empty list and the reason."""
    chosen = random.Random(0).sample(paths, min(len(paths), MOST_FILES))
    first = {_format(path): path for path in reversed(chosen)}
    chosen.sort(key=lambda path: first[_format(path)] is not path)
    files: list[tuple[_Path, bytes]] = []
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
        files.append((path, data))
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
    files: list[bytes],
    conversions: dict[Form, Callable[[bytes], bytes]],
    until: float,
    least: int,
) -> list[_Form]:
    """Converts as many files as time and memory allow, but `least` at least, to every form that at
    least one of them has."""
    forms = [_Form("encoded"), *map(_Form, conversions)]
    total = 0
    for done, data in enumerate(files, 1):
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
        is_over = time.perf_counter() > until or total > MOST_CONVERTED_BYTES
        if is_over and done >= least:
            break
    return [form for form in forms if form.converted or form.name == "encoded"]


def _prepare(forms: list[_Form], preparer: Preparer, until: float) -> None:
    count = len(forms[0].items)
    for index in range(min(count, WARM_UP_FILES)):
        for form in forms:
            preparer(form.items[index])
    for form in forms:
        form.cpu_s, form.passes = [0.0] * count, [0] * count
    epoch = 0
    while True:
        for index in range(count):
            for form in forms:
                item = form.items[index]
                before = time.thread_time()
                preparer(item, epoch=epoch, index=index)
                form.cpu_s[index] += time.thread_time() - before
                form.passes[index] += 1
            if epoch and time.perf_counter() > until:
                return
        epoch += 1
        if time.perf_counter() > until:
            return
