"""The metrics of this process's loaders for OpenTelemetry, under the names that Prometheus gets.

Needs OpenTelemetry's API alone (``pip install opentelemetry-api``), a small package in Python. Where the
figures go, and how often, is up to the SDK and the exporter that the program sets up:

    from opentelemetry import metrics
    from opentelemetry.sdk.metrics import MeterProvider
    import headrace.opentelemetry

    metrics.set_meter_provider(MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())]))
    headrace.opentelemetry.observe()

Nothing runs between two exports. docs/metrics.md lists the names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

try:
    from opentelemetry import metrics
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "headrace.opentelemetry needs OpenTelemetry's API: pip install opentelemetry-api",
        name=error.name,
    ) from error

from . import _core

__all__ = ["observe"]

# Families of Prometheus's text format, samples of a family, labels of a sample, what is escaped in one.
_FAMILY = re.compile(r"^# HELP (\S+) (.*)\n# TYPE \S+ (\w+)\n((?:\w.*\n)*)", re.MULTILINE)
_SAMPLE = re.compile(r"^\w+(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")


def observe(meter: metrics.Meter | None = None) -> None:
    """Makes an observable counter or gauge of each metric. Call it once in a process.

    Args:
        meter: who makes them; ``None``: the meter ``headrace`` of the global provider, which may be
            set later.
    """
    if meter is None:
        meter = metrics.get_meter("headrace", _core.version)
    for name, description, kind, _ in _FAMILY.findall(_core.metrics_text()):
        counter = kind == "counter"
        create = meter.create_observable_counter if counter else meter.create_observable_gauge
        create(name, [partial(_observations, name)], description=description)


def _observations(name: str, options: metrics.CallbackOptions) -> Iterator[metrics.Observation]:
    for found, _, _, samples in _FAMILY.findall(_core.metrics_text()):
        if found != name:
            continue
        for labels, value in _SAMPLE.findall(samples):
            attributes = {key: _unescaped(text) for key, text in _LABEL.findall(labels)}
            yield metrics.Observation(float(value) if "." in value else int(value), attributes)


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda match: "\n" if match[1] == "n" else match[1], text)
