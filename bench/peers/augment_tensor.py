"""torchvision v2's uint8 tensor kernels with a recipe of recipes.py, after simplejpeg (libjpeg-turbo),
because torchvision's own decoder does not load beside a CPU build of torch."""

import simplejpeg

import augment_torchvision as peer


def decode(blob):
    return peer.torch.from_numpy(simplejpeg.decode_jpeg(blob, "RGB")).permute(2, 0, 1)


peer.serve("torchvision, tensor", f"simplejpeg {simplejpeg.__version__}, {peer.VERSION}", decode, [])
