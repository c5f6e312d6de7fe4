"""OpenCV + NumPy: imdecode to RGB, crop, resize (INTER_AREA to shrink,
INTER_LINEAR to enlarge, as its documentation advises), flip, normalise to
float32 CHW. One thread."""

import cv2
import numpy as np

import worker

args = worker.arguments()
blobs = worker.load(args)
crops = worker.crops(blobs, args.seed)
arrays = [np.frombuffer(b, np.uint8) for b in blobs]
batch = np.empty((worker.BATCH, 3, worker.SIZE, worker.SIZE), np.float32)
scale = (1 / 255 / np.array(worker.STD)).astype(np.float32)[:, None, None]
shift = (-np.array(worker.MEAN) / np.array(worker.STD)).astype(np.float32)[:, None, None]
cv2.setNumThreads(1)
RGB = getattr(cv2, "IMREAD_COLOR_RGB", None)


def one_pass():
    for i, (data, (x, y, w, h, flip)) in enumerate(zip(arrays, crops)):
        if RGB is not None:
            image = cv2.imdecode(data, RGB)[y:y + h, x:x + w]
        else:
            image = cv2.cvtColor(cv2.imdecode(data, cv2.IMREAD_COLOR)[y:y + h, x:x + w],
                                 cv2.COLOR_BGR2RGB)
        shrink = w * h > worker.SIZE * worker.SIZE
        image = cv2.resize(image, (worker.SIZE, worker.SIZE),
                           interpolation=cv2.INTER_AREA if shrink else cv2.INTER_LINEAR)
        if flip:
            image = cv2.flip(image, 1)
        row = batch[i % worker.BATCH]
        np.multiply(image.transpose(2, 0, 1), scale, out=row)
        np.add(row, shift, out=row)


worker.serve("OpenCV + NumPy", f"OpenCV {cv2.__version__}, NumPy {np.__version__}", one_pass,
             len(blobs))
