"""Transforms of sounds: which part is used, rate and channels, and features.

Lengths are seconds before ``Resample`` and frames after it; full scale is -1 to 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from . import _arguments as _a
from ._base import Operation, Transform

# enum hr_log_mel, and the words of other parameters
_STYLES = {"whisper": 0, "kaldi": 1}
_SCALES = {"htk": 0, "slaney": 1}
_NORMS = {None: 0, "slaney": 1}
_STYPES = {"power": 0, "magnitude": 1}


def _word(what: str, value: Any, words: dict[Any, int]) -> int:
    if value not in words:
        raise ValueError(f"{what} must be one of {', '.join(map(repr, words))}, got {value!r}")
    return words[value]


class _OfSounds(Transform):
    _is_of_sounds = True


class _Window(_OfSounds):
    def __init__(self, seconds: float, pad: bool = True) -> None:
        self.seconds = float(seconds)
        self.pad = bool(pad)

    def _operations(self) -> list[Operation]:
        return [(type(self).__name__, {"seconds": self.seconds, "pad": self.pad})]


class RandomWindow(_Window):
    """A part of each clip, at a place drawn uniformly. Only it is decoded.

    Args:
        seconds: its length. With a ``Resample`` after it, it is a part of the whole clip at the new
            rate, bit for bit.
        pad: a shorter clip is extended with zeros; ``False``: it is a bad sample.
    """

    _is_random = True


class CenterWindow(_Window):
    """The middle of each clip; arguments as of :class:`RandomWindow`."""


class PadOrTrim(_OfSounds):
    """The first frames of each clip; a shorter clip is extended with zeros.

    Args:
        frames: how many, at the rate that the sound has here. Loaders need a ``Resample`` before it,
            or features after it: they say which rate.
    """

    def __init__(self, frames: int) -> None:
        self.frames = _a.integer("PadOrTrim: frames", frames, 1)

    def _operations(self) -> list[Operation]:
        return [("PadOrTrim", {"frames": self.frames})]


class Mono(_OfSounds):
    """The mean of all channels."""

    def _operations(self) -> list[Operation]:
        return [("Mono", {})]


class Channels(_OfSounds):
    """Takes clips with so many channels as they are; others are bad samples."""

    def __init__(self, count: int) -> None:
        self.count = _a.integer("Channels: count", count, 1, 8)

    def _operations(self) -> list[Operation]:
        return [("Channels", {"count": self.count})]


class Resample(_OfSounds):
    """Changes the rate, as torchaudio's with its defaults (sinc_interp_hann, 6, 0.99).

    Args:
        orig_freq: clips with another rate are bad samples; ``None``: every clip has its own rate.
        new_freq: frames per second.
    """

    def __init__(self, orig_freq: int | None = None, new_freq: int = 16000) -> None:
        self.orig_freq = orig_freq
        if orig_freq is not None:
            self.orig_freq = _a.integer("Resample: orig_freq", orig_freq, 1)
        self.new_freq = _a.integer("Resample: new_freq", new_freq, 1)

    def _operations(self) -> list[Operation]:
        return [("Resample", {"orig_freq": self.orig_freq or 0, "new_freq": self.new_freq})]


class SpeedPerturbation(_OfSounds):
    """Plays a clip faster or slower, as torchaudio's; a ``PadOrTrim`` has to follow.

    Args:
        orig_freq: has no effect; torchaudio's needs it.
        factors: hundredths from 0.25 to 4, at most eight; one is drawn for each clip.
    """

    _is_random = True

    def __init__(
        self, orig_freq: int | None = None, factors: Sequence[float] = (0.9, 1.0, 1.1)
    ) -> None:
        self.orig_freq = orig_freq
        self.factors = _a.numbers("SpeedPerturbation: factors", factors)
        if not 1 <= len(self.factors) <= 8:
            raise ValueError(
                f"SpeedPerturbation: factors must be 1 to 8 numbers, got {len(self.factors)}"
            )

    def _operations(self) -> list[Operation]:
        rest = (1.0,) * (8 - len(self.factors))
        values = {"factors": self.factors + rest, "count": len(self.factors)}
        return [("SpeedPerturbation", values)]


class Gain(_OfSounds):
    """Amplifies by a factor drawn uniformly in decibels.

    Args:
        min_gain_in_db, max_gain_in_db: decibels.
        p: probability.
    """

    _is_random = True

    def __init__(
        self, min_gain_in_db: float = -18.0, max_gain_in_db: float = 6.0, p: float = 0.5
    ) -> None:
        self.min_gain_in_db = float(min_gain_in_db)
        self.max_gain_in_db = float(max_gain_in_db)
        self.p = float(p)

    def _operations(self) -> list[Operation]:
        return [("Gain", self._arguments())]


class MelSpectrogram(_OfSounds):
    """Mel bands, as torchaudio's: a tensor of (n_mels, frames).

    Args:
        sample_rate: must be the rate of the sound here.
        n_fft: even, without prime factors above 61.
        win_length, hop_length: default ``n_fft`` and half of ``win_length``.
        f_min, f_max: Hz; ``f_max`` defaults to half of the rate.
        power: 2, or 1 for amplitudes.
        center: columns are centred on their frame; the sound is mirrored at its ends.
        norm: ``"slaney"`` or ``None``.
        mel_scale: ``"htk"`` or ``"slaney"``.

    torchaudio's other arguments (``pad``, ``window_fn``, ``normalized``, ``pad_mode``) have their
    defaults here and are refused.
    """

    def __init__(
        self,
        sample_rate: int = 16000,
        n_fft: int = 400,
        win_length: int | None = None,
        hop_length: int | None = None,
        f_min: float = 0.0,
        f_max: float | None = None,
        *,
        n_mels: int = 128,
        power: float = 2.0,
        center: bool = True,
        norm: Literal["slaney"] | None = None,
        mel_scale: Literal["htk", "slaney"] = "htk",
    ) -> None:
        self.sample_rate = _a.integer("MelSpectrogram: sample_rate", sample_rate, 1)
        self.n_fft = _a.integer("MelSpectrogram: n_fft", n_fft, 2)
        self.win_length = _a.integer("MelSpectrogram: win_length", win_length or n_fft, 1)
        self.hop_length = _a.integer(
            "MelSpectrogram: hop_length", hop_length or max(self.win_length // 2, 1), 1
        )
        self.f_min = float(f_min)
        self.f_max = float(f_max) if f_max is not None else float(self.sample_rate // 2)
        self.n_mels = _a.integer("MelSpectrogram: n_mels", n_mels, 1)
        self.power = float(power)
        self.center = bool(center)
        self.norm = norm
        self.mel_scale = mel_scale
        _word("MelSpectrogram: norm", norm, _NORMS)
        _word("MelSpectrogram: mel_scale", mel_scale, _SCALES)

    def _operations(self) -> list[Operation]:
        words = {"norm": _NORMS[self.norm], "mel_scale": _SCALES[self.mel_scale]}
        return [("MelSpectrogram", {**self._arguments(), **words})]


class LogMel(_OfSounds):
    """The features of Whisper or Kaldi, of a sound of one channel and 16 kHz.

    Args:
        style: ``"whisper"``: log-mel spectrogram of 25 ms every 10 ms, 8 decades below the loudest,
            about -1 to 1. ``"kaldi"``: ``torchaudio.compliance.kaldi.fbank`` without dither,
            transposed.
        n_mels: bands.
    """

    def __init__(self, style: Literal["whisper", "kaldi"] = "whisper", n_mels: int = 80) -> None:
        self.style = style
        _word("LogMel: style", style, _STYLES)
        self.n_mels = _a.integer("LogMel: n_mels", n_mels, 1)

    def _operations(self) -> list[Operation]:
        return [("LogMel", {"style": _STYLES[self.style], "n_mels": self.n_mels})]


class AmplitudeToDB(_OfSounds):
    """Decibels of a spectrogram, as torchaudio's.

    Args:
        stype: ``"power"`` or ``"magnitude"``.
        top_db: range below the loudest number of the clip.
    """

    def __init__(
        self, stype: Literal["power", "magnitude"] = "power", top_db: float | None = None
    ) -> None:
        self.stype = stype
        _word("AmplitudeToDB: stype", stype, _STYPES)
        self.top_db = None if top_db is None else float(top_db)

    def _operations(self) -> list[Operation]:
        values = {"stype": _STYPES[self.stype], "has_top_db": self.top_db is not None}
        return [("AmplitudeToDB", {**values, "top_db": self.top_db or 0.0})]


class _Masking(_OfSounds):
    _is_random = True

    def __init__(self, mask_param: int, p: float = 1.0) -> None:
        self.mask_param = mask_param
        self.p = float(p)

    def _operations(self) -> list[Operation]:
        return [(type(self).__name__, {"mask_param": self.mask_param, "p": self.p})]


class FrequencyMasking(_Masking):
    """Sets a band of up to ``freq_mask_param`` rows to 0, as torchaudio's."""

    def __init__(self, freq_mask_param: int, iid_masks: bool = False) -> None:
        super().__init__(_a.integer("FrequencyMasking: freq_mask_param", freq_mask_param, 0))


class TimeMasking(_Masking):
    """Sets up to ``time_mask_param`` columns to 0, at most the share ``p`` of them, as torchaudio's."""

    def __init__(self, time_mask_param: int, iid_masks: bool = False, p: float = 1.0) -> None:
        super().__init__(_a.integer("TimeMasking: time_mask_param", time_mask_param, 0), p)
