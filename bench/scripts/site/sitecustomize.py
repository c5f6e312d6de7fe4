"""Where torchvision's compiled part does not load beside this PyTorch: what imports it gets
tools/torchvision_shim.py first. The scripts themselves know nothing of it."""

import sys


class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "torchvision":
            sys.meta_path.remove(self)
            import torchvision_shim

            try:
                torchvision_shim.prepare()
            except ImportError:
                pass
        return None


sys.meta_path.insert(0, Finder())
