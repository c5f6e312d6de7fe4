"""torchvision v2 on PIL images with a recipe of recipes.py."""

import io

import PIL
from PIL import Image

import augment_torchvision as peer

peer.serve("torchvision, PIL", f"{peer.VERSION}, Pillow {PIL.__version__}",
           lambda blob: Image.open(io.BytesIO(blob)).convert("RGB"), [peer.t.PILToTensor()])
