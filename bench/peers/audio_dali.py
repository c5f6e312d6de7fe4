"""NVIDIA DALI's CPU pipeline on one thread. Its decoder takes whole files; it resamples and mixes
them down itself. The window is cut afterwards."""

import json
import sys
import time

import numpy as np
import nvidia.dali as dali
from nvidia.dali import fn, pipeline_def, types

import audio_common as common

args = common.arguments()
blobs = [np.frombuffer(blob, np.uint8) for blob in common.load(args)]
rate = common.RATE[args.recipe]


@pipeline_def(batch_size=len(blobs), num_threads=1, device_id=None, seed=1,
              prefetch_queue_depth=1)
def pipeline():
    data = fn.external_source(source=lambda: blobs, batch=True, no_copy=True)
    wave, _ = fn.decoders.audio(data, dtype=types.FLOAT, downmix=True, sample_rate=rate)
    first = fn.random.uniform(range=(0, common.CLIP_SECONDS - common.SECONDS - 0.1)) * rate
    wave = fn.slice(wave, fn.cast(first, dtype=types.INT32), common.SECONDS * rate, axes=[0],
                    normalized_anchor=False, normalized_shape=False)
    if args.recipe == "raw":
        return wave
    spectrum = fn.spectrogram(wave, nfft=common.POINTS, window_length=common.POINTS,
                              window_step=common.HOP)
    mel = fn.mel_filter_bank(spectrum, sample_rate=rate, nfilter=common.BANDS)
    return fn.to_decibels(mel, multiplier=10.0, cutoff_db=-80.0)


pipe = pipeline()
pipe.build()
print(json.dumps({"name": "DALI CPU", "version": f"DALI {dali.__version__}"}), flush=True)
for line in sys.stdin:
    if line.strip() != "pass":
        break
    wall, cpu = time.perf_counter(), time.process_time()
    pipe.run()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(json.dumps({"seconds": wall, "cpu_seconds": cpu, "samples": len(blobs)}), flush=True)
