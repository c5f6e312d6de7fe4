"""torchcodec decodes the whole file, as torchaudio.load does; then the window, and torchaudio."""

import torch
import torchcodec
from torchcodec.decoders import AudioDecoder

import audio_common as common
import audio_features

args = common.arguments()
features = audio_features.Features(args.recipe)


def one(blob, second):
    samples = AudioDecoder(blob).get_all_samples()
    first = int(second * samples.sample_rate)
    with torch.inference_mode():
        return features(samples.data[:, first:first + common.SECONDS * samples.sample_rate])


common.serve("torchcodec, whole file", f"torchcodec {torchcodec.__version__}, "
             f"{audio_features.VERSION}", one, common.load(args))
