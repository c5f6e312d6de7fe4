"""The digest of a dataset's first sample: part of every key on several hosts, where identities alone
would not keep two datasets apart that somebody gave the same one."""

from __future__ import annotations

import hashlib
import os
from typing import Any

from ._values import Unkept, encode, type_name


class FirstSample:
    """Each process makes the digest when it needs the first key, since files that a dataset opens may
    be unusable in a process forked later. Raises ValueError if the dataset's kind has none."""

    def __init__(self, dataset: Any, keeps_files: bool) -> None:
        self._dataset: Any = None
        self._path: Any = None
        self._digest = b""
        if not keeps_files:
            self._dataset = dataset
            return
        listed = getattr(dataset, "samples", None) or getattr(dataset, "imgs", None)
        if not listed:
            raise ValueError(
                f"a cache on several hosts tells datasets apart by their first file, and a "
                f"{type_name(type(dataset))} has no list of `samples` or `imgs`: files=False keeps "
                "what the dataset returns"
            )
        entry = listed[0]
        self._path = entry if isinstance(entry, (str, os.PathLike)) else entry[0]

    def digest(self) -> bytes:
        """Raises what the dataset raises, and ValueError if its first sample differs when made
        again."""
        if not self._digest:
            self._digest = self._of_sample() if self._path is None else self._of_file()
        return self._digest

    def _of_file(self) -> bytes:
        with open(self._path, "rb", buffering=0) as file:
            return hashlib.blake2b(file.read(), digest_size=16).digest()

    def _of_sample(self) -> bytes:
        digest = _digest(self._dataset[0])
        if _digest(self._dataset[0]) != digest:
            raise ValueError(
                f"samples of {type_name(type(self._dataset))} are random (making the first one twice "
                "gave two different ones), so hosts cannot share them: give the random part as "
                "after=, which runs behind the cache"
            )
        return digest


def _digest(sample: Any) -> bytes:
    out = hashlib.blake2b(digest_size=16)
    try:
        for piece in encode(sample):
            out.update(piece)
    except Unkept as error:
        raise TypeError(f"the first sample cannot be kept: {error}") from None
    return out.digest()
