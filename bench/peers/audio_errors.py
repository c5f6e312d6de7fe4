"""Prints the largest differences of Headrace's resampling and log-mel features from the same in
float64, over whole clips: two numbers."""

import headrace
import headrace.transforms as t
import numpy

import audio_common as common
import audio_exact

args = common.arguments()
resample_error = logmel_error = 0.0
for path, blob in zip(open(args.files).read().splitlines(), common.load(args)):
    exact, rate = audio_exact.read_wav(path)
    for to in common.RATE.values():
        count = common.CLIP_SECONDS * to - to // 10
        head = [t.Mono(), t.Resample(new_freq=to), t.PadOrTrim(count)]
        found = numpy.asarray(headrace.Preparer(head)(blob))[0]
        error = abs(found - audio_exact.resample(exact, rate, to, count)).max()
        resample_error = max(resample_error, error)
        if to == 16000:
            features = numpy.asarray(headrace.Preparer([*head, t.LogMel("whisper")])(blob))
            logmel_error = max(logmel_error, abs(features - audio_exact.log_mel(found)).max())
print(resample_error, logmel_error)
