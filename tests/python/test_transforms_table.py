"""docs/transforms.md is what tools/transforms_table.py makes of the packages here."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_up_to_date(torchvision):
    pytest.importorskip("timm")
    import timm

    sys.path.insert(0, str(ROOT / "tools"))
    import transforms_table

    page = (ROOT / "docs" / "transforms.md").read_text()
    versions = re.findall(r"^## (torchvision|timm) ([0-9.]+)", page, re.M)
    here = torchvision.__version__.partition("+")[0]
    if dict(versions) != {"torchvision": here, "timm": timm.__version__}:
        pytest.skip(f"the page is of {versions}, and here are {here} and {timm.__version__}")
    assert transforms_table.page() == page, "run python tools/transforms_table.py"
