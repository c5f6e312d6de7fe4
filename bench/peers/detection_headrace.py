"""Headrace's preparer with SSD300's recipe, on items in memory with a dataset's rows; new random
parameters in each pass."""

import headrace
import headrace.transforms as t
from headrace import _core

import detection_set as of
import worker

args = of.arguments()
dataset = headrace.CocoDetection(of.images_of(args.set), of.annotations_of(args.set))
converter = headrace.Converter()
items = [converter.convert(blob[0], args.form) for blob in of.load(args.set)]
recipe = t.make_recipe([
    *of.colors(t, args.recipe), *of.geometry(t), t.Resize((of.SIZE, of.SIZE), antialias=False),
    t.SanitizeBoundingBoxes(), t.ToDtype("float32", scale=True), t.Normalize(of.MEAN, of.STD)])
# the preparer of headrace.Preparer, which can also be given rows
preparer = _core.Preparer()
passes = 0


def one_pass():
    global passes
    for i, item in enumerate(items):
        preparer.run(recipe, item, args.seed, passes, i, dataset=dataset._dataset)
    passes += 1


worker.serve(f"Headrace, {args.form}", headrace.__version__, one_pass, len(items))
