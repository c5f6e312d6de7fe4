"""torchcodec's window of the file, and torchaudio."""

import torch
import torchcodec
from torchcodec.decoders import AudioDecoder

import audio_common as common
import audio_features

args = common.arguments()
features = audio_features.Features(args.recipe)


def one(blob, second):
    decoder = AudioDecoder(blob)
    window = decoder.get_samples_played_in_range(second, second + common.SECONDS)
    with torch.inference_mode():
        return features(window.data)


common.serve("torchcodec + torchaudio", f"torchcodec {torchcodec.__version__}, "
             f"{audio_features.VERSION}", one, common.load(args))
