"""The metrics of loaders through OpenTelemetry's real SDK: those that Prometheus gets."""

from __future__ import annotations

import gc
import re

import pytest

torch = pytest.importorskip("torch")
export = pytest.importorskip("opentelemetry.sdk.metrics.export")
from opentelemetry.sdk.metrics import MeterProvider  # noqa: E402

import headrace  # noqa: E402
import headrace.opentelemetry  # noqa: E402
from conftest import COUNT  # noqa: E402
from headrace import _core, transforms as T  # noqa: E402
from headrace.torch import DataLoader  # noqa: E402


@pytest.fixture
def reader():
    """What the SDK collects of a process that observes its loaders."""
    gc.collect()  # loaders that other tests left
    reader = export.InMemoryMetricReader()
    provider = MeterProvider([reader])
    headrace.opentelemetry.observe(provider.get_meter("headrace"))
    yield reader
    provider.shutdown()


def collected(reader):
    """{name: metric} of what the SDK has now."""
    data = reader.get_metrics_data()
    if data is None:
        return {}
    return {metric.name: metric for resource in data.resource_metrics
            for scope in resource.scope_metrics for metric in scope.metrics}


def as_series(metrics):
    """{series: value}, named as in Prometheus's text."""
    series = {}
    for name, metric in metrics.items():
        for point in metric.data.data_points:
            labels = ",".join(f'{key}="{text}"' for key, text in point.attributes.items())
            series[f"{name}{{{labels}}}"] = point.value
    return series


def served():
    """The same of the text that a scrape gets."""
    lines = [line for line in _core.metrics_text().splitlines() if not line.startswith("#")]
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines}


def test_the_same_as_prometheus(folder, reader):
    assert not as_series(collected(reader))
    transform = T.Compose([T.CenterCrop(16), T.ToDtype("uint8")])
    with DataLoader(headrace.ImageFolder(folder, transform), 4, shuffle=True) as loader, \
            DataLoader([1, 2, 3], 1, num_workers=0, rank=1, world_size=2) as other:
        for one in (loader, other):
            list(one)
        metrics = collected(reader)
        found, expected = as_series(metrics), served()
        assert expected['headrace_loader_prepared_samples_total{rank="0",loader="0"}'] == COUNT
        assert expected['headrace_loader_batches_total{rank="1",loader="1"}'] == 2
        assert found == pytest.approx(expected)
        for name, metric in metrics.items():
            assert metric.data.__class__.__name__ == ("Sum" if name.endswith("_total") else "Gauge")
            assert metric.description
    assert not as_series(collected(reader))


def test_labels_with_quotes(tmp_path, folder, reader):
    """Attributes hold the text itself, without the escapes of Prometheus's format."""
    odd = tmp_path / 'a "quoted\\ one,b="'
    odd.symlink_to(folder)
    with DataLoader(headrace.ImageFolder(odd, T.CenterCrop(8)), 4) as loader:
        list(loader)
        [info] = collected(reader)["headrace_loader_info"].data.data_points
        assert info.attributes["dataset"] == str(odd)
        assert info.value == 1


def test_each_family_is_text(reader):
    """Of a process without loaders: the names are known before the first epoch."""
    names = re.findall(r"^# TYPE (\w+) (?:counter|gauge)$", _core.metrics_text(), re.MULTILINE)
    assert len(names) > 30 and len(set(names)) == len(names)
    assert all(name.startswith("headrace_loader_") for name in names)
