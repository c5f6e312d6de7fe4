"""torchaudio's transforms, as its documentation advises: made once, and used for every clip."""

import torch
import torchaudio

import audio_common as common

torch.set_num_threads(1)
VERSION = f"torchaudio {torchaudio.__version__}, torch {torch.__version__}"


class Features:
    """From a window (channels, frames) to the sample."""

    def __init__(self, recipe, rate=44100):
        self.is_raw = recipe == "raw"
        self.resample = torchaudio.transforms.Resample(rate, common.RATE[recipe])
        self.mel = torchaudio.transforms.MelSpectrogram(
            16000, common.POINTS, hop_length=common.HOP, n_mels=common.BANDS, norm="slaney",
            mel_scale="slaney")

    def __call__(self, window):
        wave = self.resample(window.mean(0, keepdim=True))
        if self.is_raw:
            return wave
        mel = self.mel(wave)[..., :-1].clamp(min=1e-10).log10()
        return (torch.maximum(mel, mel.max() - 8) + 4) / 4
