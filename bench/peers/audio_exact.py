"""Resampling and log-mel features in float64, which bench/audio.py compares Headrace's with. They
follow the definitions: torchaudio's sinc_interp_hann with 6 zero crossings and a rolloff of 0.99,
and Whisper's features (25 ms windows, 80 bands of Slaney's scale, 8 decades)."""

import math
import wave

import numpy


def read_wav(path):
    """Returns (mono float64 samples, rate) of a WAV file of 16 bits."""
    with wave.open(path) as file:
        frames = numpy.frombuffer(file.readframes(file.getnframes()), "<i2")
        rate = file.getframerate()
        return frames.reshape(-1, file.getnchannels()).astype(numpy.float64).mean(1) / 32768, rate


def resample(x, rate, to, count):
    """Returns the first `count` frames at the rate `to`."""
    factor = math.gcd(rate, to)
    rate, to = rate // factor, to // factor
    base = min(rate, to) * 0.99
    reach = math.ceil(6 * rate / base) + 1
    padded = numpy.concatenate([numpy.zeros(reach), x, numpy.zeros(reach + rate)])
    out = numpy.zeros(count)
    for phase in range(min(to, count)):
        middle = phase * rate / to
        first = math.floor(middle) - reach
        taps = numpy.arange(first, first + 2 * reach + 1)
        t = numpy.clip((taps / rate - phase / to) * base, -6, 6)
        kernel = numpy.sinc(t) * numpy.cos(t * math.pi / 12) ** 2 * base / rate
        rows = numpy.arange(phase, count, to)
        begin = (rows // to) * rate + first + reach
        for j, factor in enumerate(kernel):
            at = begin + j
            inside = (at >= 0) & (at < len(padded))
            out[rows[inside]] += factor * padded[at[inside]]
    return out


def mel_filters(bands, points, rate):
    """Slaney's triangles: (bands, points / 2 + 1)."""
    step = math.log(6.4) / 27

    def to_mel(hz):
        return hz * 3 / 200 if hz < 1000 else 15 + math.log(hz / 1000) / step

    mels = numpy.linspace(0, to_mel(rate / 2), bands + 2)
    edge = numpy.where(mels < 15, mels * 200 / 3, 1000 * numpy.exp((mels - 15) * step))
    hz = numpy.arange(points // 2 + 1) * rate / points
    up = (hz - edge[:-2, None]) / (edge[1:-1] - edge[:-2])[:, None]
    down = (edge[2:, None] - hz) / (edge[2:] - edge[1:-1])[:, None]
    return numpy.maximum(0, numpy.minimum(up, down)) * (2 / (edge[2:] - edge[:-2]))[:, None]


def log_mel(x, bands=80, points=400, hop=160, rate=16000):
    """Whisper's features of a waveform of 16 kHz."""
    padded = numpy.pad(x.astype(numpy.float64), points // 2, mode="reflect")
    columns = len(x) // hop
    frames = padded[numpy.arange(points)[None] + hop * numpy.arange(columns)[:, None]]
    window = 0.5 - 0.5 * numpy.cos(2 * math.pi * numpy.arange(points) / points)
    power = abs(numpy.fft.rfft(frames * window)) ** 2
    mel = numpy.log10(numpy.maximum(mel_filters(bands, points, rate) @ power.T, 1e-10))
    return (numpy.maximum(mel, mel.max() - 8) + 4) / 4
