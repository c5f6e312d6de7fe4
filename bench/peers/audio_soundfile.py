"""soundfile's (libsndfile's) window of the file, and torchaudio."""

import io

import soundfile
import torch

import audio_common as common
import audio_features

args = common.arguments()
features = audio_features.Features(args.recipe)


def one(blob, second):
    with soundfile.SoundFile(io.BytesIO(blob)) as file:
        file.seek(int(second * file.samplerate))
        window = file.read(common.SECONDS * file.samplerate, dtype="float32", always_2d=True)
    with torch.inference_mode():
        return features(torch.from_numpy(window.T))


common.serve("soundfile + torchaudio", f"soundfile {soundfile.__version__}, "
             f"{soundfile.__libsndfile_version__}, {audio_features.VERSION}", one,
             common.load(args))
