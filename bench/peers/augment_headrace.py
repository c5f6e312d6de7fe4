"""headrace.Preparer with a recipe of recipes.py; new random parameters in each pass."""

import headrace
import headrace.transforms as t

import recipes
import worker

args = worker.arguments()
blobs = worker.load(args)
finish = [t.ToDtype("float32", scale=True), t.Normalize(worker.MEAN, worker.STD)]
name = args.recipe.removesuffix("_apart")
if name in recipes.VIEWS:
    views = recipes.VIEWS[name](t)
    if args.recipe == name:
        prepares = [headrace.Preparer([t.Views(views), *finish])]
    else:  # each view decodes the image anew
        prepares = [headrace.Preparer([*view, *finish]) for view in views]
else:
    before, after = recipes.RECIPES[args.recipe](t)
    prepares = [headrace.Preparer([*before, *finish, *after])]
passes = 0


def one_pass():
    global passes
    for i, blob in enumerate(blobs):
        for prepare in prepares:
            prepare(blob, seed=args.seed, epoch=passes, index=i)
    passes += 1


worker.serve("Headrace", headrace.__version__, one_pass, len(blobs))
