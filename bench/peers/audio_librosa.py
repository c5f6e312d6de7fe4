"""librosa: its window of the file (through soundfile), soxr's resampling, and its features."""

import io

import librosa
import numpy

import audio_common as common

args = common.arguments()


def one(blob, second):
    wave, rate = librosa.load(io.BytesIO(blob), sr=common.RATE[args.recipe], offset=second,
                              duration=common.SECONDS)
    if args.recipe == "raw":
        return wave
    mel = librosa.feature.melspectrogram(y=wave, sr=rate, n_fft=common.POINTS,
                                         hop_length=common.HOP, n_mels=common.BANDS)
    mel = numpy.log10(numpy.maximum(mel[:, :-1], 1e-10))
    return (numpy.maximum(mel, mel.max() - 8) + 4) / 4


common.serve("librosa", f"librosa {librosa.__version__}", one, common.load(args))
