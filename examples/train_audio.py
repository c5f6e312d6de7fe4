#!/usr/bin/env python3
"""Trains a classifier of sounds: M5 on raw waveforms, or a small encoder like Whisper's on log-mel
features.

    python tools/make_speech.py data/speech
    python examples/train_audio.py data/speech
    python examples/train_audio.py data/speech --network whisper

The folder has train/CLASS/CLIP and test/CLASS/CLIP: WAV, FLAC, MP3 or Vorbis files of any rate,
with any number of channels. --loader torch trains M5 with torch's DataLoader and soundfile instead,
so that losses and speed can be compared: it draws other windows of the same length.
"""

import argparse
import math
import sys
import time
from pathlib import Path

import torch
from torch import nn

try:
    import soundfile
except ImportError:
    soundfile = None

RATES = {"m5": 8000, "whisper": 16000}


# ---- the loader -------------------------------------------------------------


def headrace_loader(options, part):
    import headrace
    from headrace import transforms as T
    from headrace.torch import DataLoader

    window = T.RandomWindow(options.seconds) if part == "train" else T.CenterWindow(options.seconds)
    transform = [window, T.Mono(), T.Resample(new_freq=RATES[options.network])]
    if options.network == "whisper":
        transform.append(T.LogMel("whisper"))
    clips = headrace.AudioFolder(Path(options.data) / part, transform)
    loader = DataLoader(
        clips,
        options.batch_size,
        shuffle=part == "train",
        num_workers=options.workers,
        seed=options.seed,
        cache=options.cache if part == "train" else None,
        cache_form=options.cache_form,
    )
    return loader, len(clips.classes)


class Clips(torch.utils.data.Dataset):
    """The same waveforms with soundfile, resampled by Fourier transforms."""

    def __init__(self, root, is_random, seconds):
        classes = sorted(folder for folder in root.iterdir() if folder.is_dir())
        self.classes = [folder.name for folder in classes]
        self.samples = [
            (path, label) for label, folder in enumerate(classes) for path in sorted(folder.iterdir())
        ]
        self.is_random, self.seconds = is_random, seconds

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        path, label = self.samples[index]
        with soundfile.SoundFile(path) as file:
            frames = round(self.seconds * file.samplerate)
            spare = max(file.frames - frames, 0)
            file.seek(int(torch.randint(spare + 1, ())) if self.is_random else spare // 2)
            samples = file.read(frames, dtype="float32", always_2d=True)
        wave = torch.from_numpy(samples).mean(1)
        wave = nn.functional.pad(wave, (0, frames - len(wave)))
        new = round(self.seconds * RATES["m5"])
        return torch.fft.irfft(torch.fft.rfft(wave)[: new // 2 + 1], new)[None] * new / frames, label


def torch_loader(options, part):
    if options.network != "m5":
        sys.exit("train_audio: --loader torch is for --network m5")
    if soundfile is None:
        sys.exit("train_audio: --loader torch needs soundfile; run: pip install soundfile")
    clips = Clips(Path(options.data) / part, part == "train", options.seconds)
    loader = torch.utils.data.DataLoader(
        clips,
        options.batch_size,
        shuffle=part == "train",
        num_workers=options.workers,
        persistent_workers=options.workers > 0,
    )
    return loader, len(clips.classes)


# ---- the networks -----------------------------------------------------------


def m5(classes, width=64):
    """M5 of Dai et al., Very Deep Convolutional Neural Networks for Raw Waveforms, 2017; with its
    width of 128 the network of the paper."""

    def block(inputs, outputs, kernel, stride, padding):
        return (
            nn.Conv1d(inputs, outputs, kernel, stride, padding, bias=False),
            nn.BatchNorm1d(outputs),
            nn.ReLU(),
            nn.MaxPool1d(4),
        )

    return nn.Sequential(
        *block(1, width, 80, 4, 38),
        *block(width, width, 3, 1, 1),
        *block(width, 2 * width, 3, 1, 1),
        *block(2 * width, 4 * width, 3, 1, 1),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(4 * width, classes),
    )


class Whisper(nn.Module):
    """The encoder of Radford et al., Robust Speech Recognition via Large-Scale Weak Supervision,
    2022, in small, with the mean over time as its result."""

    def __init__(self, classes, width=96, heads=4, layers=2):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv1d(80, width, 3, padding=1),
            nn.GELU(),
            nn.Conv1d(width, width, 3, stride=2, padding=1),
            nn.GELU(),
        )
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, classes))

    def forward(self, features):
        x = self.stem(features).transpose(1, 2)
        frequency = torch.exp(-math.log(10000) * torch.linspace(0, 1, x.shape[2] // 2))
        angle = torch.arange(x.shape[1])[:, None] * frequency
        x = x + torch.cat([angle.sin(), angle.cos()], 1).to(x.device)
        return self.head(self.blocks(x).mean(1))


# ---- training ---------------------------------------------------------------


def accuracy(network, loader, device):
    network.eval()
    right = count = 0
    with torch.no_grad():
        for sounds, labels in loader:
            right += int((network(sounds.to(device)).argmax(1).cpu() == labels).sum())
            count += len(labels)
    network.train()
    return right / count


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("data", nargs="?", default="data/speech")
    parser.add_argument("--loader", choices=["headrace", "torch"], default="headrace")
    parser.add_argument("--network", choices=["m5", "whisper"], default="m5")
    parser.add_argument("--width", type=int, default=64, help="channels of M5's first layer")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a window")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cache", help="memory for Headrace's clips, such as 1GiB")
    parser.add_argument("--cache-form", choices=["auto", "encoded", "waveform"], default="auto")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if not (Path(options.data) / "train").is_dir():
        sys.exit(f"train_audio: {options.data} has no folder train; "
                 f"run: python tools/make_speech.py {options.data}")
    torch.manual_seed(options.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    loader_of = headrace_loader if options.loader == "headrace" else torch_loader
    loader, classes = loader_of(options, "train")
    test, _ = loader_of(options, "test")
    network = m5(classes, options.width) if options.network == "m5" else Whisper(classes)
    network.to(device)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    for epoch in range(options.epochs):
        began, losses = time.monotonic(), []
        for sounds, labels in loader:
            loss = nn.functional.cross_entropy(network(sounds.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        mean, seconds = torch.stack(losses).mean().item(), time.monotonic() - began
        print(f"epoch {epoch}: loss {mean:.4f}, {seconds:.1f} s", flush=True)
    print(f"accuracy on other voices: {accuracy(network, test, device):.3f}")


if __name__ == "__main__":
    main()
