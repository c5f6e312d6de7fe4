"""headrace.Preparer on files in memory, or on items of the form waveform, mono and at the recipe's
rate; new windows in each pass."""

import headrace
import headrace.transforms as t

import audio_common as common

args = common.arguments()
finish = [t.LogMel("whisper")] if args.recipe == "logmel" else []
prepare = headrace.Preparer([t.RandomWindow(common.SECONDS), t.Mono(),
                             t.Resample(new_freq=common.RATE[args.recipe]), *finish])
blobs = common.load(args)
if args.form != "encoded":
    blobs = [headrace.convert(blob, args.form, mono=True, rate=common.RATE[args.recipe])
             for blob in blobs]
drawn = 0


def one(blob, second):
    global drawn
    drawn += 1
    return prepare(blob, seed=1, index=drawn)


common.serve("Headrace", headrace.__version__, one, blobs, args.rounds)
