"""Datasets of sounds: folders and lists of WAV, FLAC, MP3 and Vorbis files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, Literal

from . import _core
from .datasets import ImageFolder, ImageList, TarDataset, _position

__all__ = ["AudioFolder", "AudioList", "AudioShards"]


class _Sounds:
    """What datasets of sounds share: a sample without a transform is all of its waveform."""

    _sounds = True

    def info(self, index: int) -> dict[str, Any]:
        """Returns ``format``, ``rate``, ``channels``, ``frames`` and ``seconds`` of a sample."""
        at = _position(index, len(self))  # type: ignore[arg-type]
        found = _core.Preparer().sound_info(self._dataset.read(at))  # type: ignore[attr-defined]
        return {**found, "seconds": found["frames"] / found["rate"]}


class AudioFolder(_Sounds, ImageFolder):
    """Sounds in one directory per class: ``root/class/.../clip.flac``.

    Indexing returns (waveform, label): without a transform all of the clip, float32 of (channels,
    frames) at its own rate; with one, what it makes.

    Args:
        root: the directory.
        transform: transforms of sounds, from :mod:`headrace.transforms`. A DataLoader can override
            it.
        target_transform: a function of the label, which runs in Python.
        allow_empty: keep classes without sounds instead of failing.
        index: location of the index file, as of :class:`ImageFolder`.
        threads: threads that list directories; 0: 16, or the number of cores if larger.

    Raises:
        FileNotFoundError: the directory does not exist, has no classes, or a class is empty.
        NotADirectoryError, PermissionError: ``root`` cannot be listed.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        transform: Any = None,
        target_transform: Callable[[int], Any] | None = None,
        allow_empty: bool = False,
        *,
        index: Literal["user", "beside", "none"] | None = "user",
        threads: int = 0,
    ) -> None:
        super().__init__(
            root, transform, target_transform, None, None, allow_empty, index=index, threads=threads
        )


class AudioList(_Sounds, ImageList):
    """Sounds from an explicit list.

    Args:
        source: a list file, one sample per line, ``path label`` (paths relative to the file), or an
            iterable of (path, label).
        transform: as of :class:`AudioFolder`.

    Raises:
        ValueError: a line or entry is not a path and a label.
        FileNotFoundError: the list file does not exist.
    """

    def __init__(
        self,
        source: str | os.PathLike[str] | Iterable[tuple[str | os.PathLike[str], int]],
        transform: Any = None,
    ) -> None:
        super().__init__(source, transform)


class AudioShards(_Sounds, TarDataset):
    """Sounds in tar files: WebDataset's shards, or a folder of sounds in a tar file.

    Args:
        path: a tar file, or a brace pattern for several:
            ``"train-{000000..000146}.tar"``.
        transform: as of :class:`AudioFolder`.
        label: where the labels are, as of :class:`TarDataset`.

    Samples, labels, keys and attributes are those of :class:`TarDataset`, with members that are
    sounds in place of images; other members are ignored.

    Raises:
        FileNotFoundError: a shard does not exist, or none has a sound.
        ValueError: a shard is damaged or compressed, or a sound has no label.
    """
