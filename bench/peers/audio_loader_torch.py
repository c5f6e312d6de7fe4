"""torch.utils.data.DataLoader of M5's input: torchaudio.load, as the tutorial on M5 does, a random
window, and torchaudio's Resample. With --windows torchcodec decodes only the window."""

import random
import sys

import torch
import torchaudio
import torchcodec
from torchcodec.decoders import AudioDecoder

import audio_loader_common as common

is_whole = "--windows" not in sys.argv
sys.argv = [word for word in sys.argv if word != "--windows"]
args = common.arguments()


class Clips(torch.utils.data.Dataset):
    def __init__(self, paths):
        self.paths = paths
        self.resample = torchaudio.transforms.Resample(44100, common.RATE)

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        path, at = self.paths[index], random.random()
        frames = common.SECONDS * 44100
        if is_whole:
            samples, _ = torchaudio.load(path)
            first = int(at * (samples.shape[1] - frames + 1))
            window = samples[:, first:first + frames]
        else:
            decoder = AudioDecoder(path)
            last = decoder.metadata.duration_seconds_from_header - common.SECONDS - 0.1
            # An MP3 begins a few milliseconds late, and a range in seconds has a frame more or less.
            begin = 0.1 + at * (last - 0.1)
            window = decoder.get_samples_played_in_range(begin, begin + common.SECONDS + 0.001)
            window = window.data[:, :frames]
        return self.resample(window.mean(0, keepdim=True)), 0


loader = torch.utils.data.DataLoader(Clips(common.paths(args)), common.BATCH, shuffle=True,
                                     num_workers=args.workers, persistent_workers=True)
common.serve("torch DataLoader, torchaudio.load" if is_whole else "torch DataLoader, windows",
             f"torch {torch.__version__}, torchaudio {torchaudio.__version__}, torchcodec "
             f"{torchcodec.__version__}", loader)
