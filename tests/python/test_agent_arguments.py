"""The DataLoader's arguments for an agent: refused values, and those that need no agent."""

import os
from pathlib import Path

import pytest

from conftest import COUNT
from headrace.torch import DataLoader
from headrace.torch import _arguments as arguments


def shared(agent=None, stream=None, join="epoch", lag="alone", window=None, **more):
    more = {"batches_ahead": 2, "has_sampler": False, **more}
    return arguments.shared(agent, stream, join, lag, window, **more)


@pytest.mark.parametrize(
    "options, words",
    [
        ({"stream": "a"}, "needs an agent"),
        ({"agent": ""}, "empty"),
        ({"agent": "auto", "stream": ""}, "must be a name"),
        ({"agent": "auto", "stream": 5}, "must be a name"),
        ({"join": "later"}, "'epoch' or 'now'"),
        ({"agent": "auto", "lag": "never"}, "'alone' or 'wait'"),
        ({"agent": "auto", "window": 3}, "window must be at least 4"),
        (
            {"agent": "auto", "stream": "s", "join": "now", "rank": 0, "world_size": 2},
            "for one rank",
        ),
        ({"window": 8, "prefetch_factor": 7}, "window must be at least 9"),
        ({"agent": "auto", "stream": "s", "sampler": [1, 2]}, "does not go with a sampler"),
        ({"agent": "auto", "stream": "s", "sampler": [1, 2]}, "Leave stream out"),
    ],
)
def test_refused(dataset, options, words):
    with pytest.raises(ValueError, match=words):
        DataLoader(dataset, 4, **options)


@pytest.mark.parametrize("options", [{"agent": 7}, {"agent": "auto", "window": "many"}])
def test_refused_types(dataset, options):
    with pytest.raises(TypeError):
        DataLoader(dataset, 4, **options)


def test_options_of_the_native_loader(tmp_path):
    assert shared() == {}
    assert shared("auto")["agent"] == "auto"
    assert shared(Path("auto"))["agent"] == "./auto"
    assert shared(tmp_path / "s")["agent"] == str(tmp_path / "s")
    assert shared(os.fsencode(tmp_path))["agent"] == os.fsencode(tmp_path)
    assert "stream" not in shared("auto")
    assert shared("auto", "hp", "now", "wait", 9) | {"agent_command": ""} == {
        "agent": "auto",
        "agent_command": "",
        "stream": "hp",
        "join": "now",
        "lag": "wait",
        "window": 9,
    }
    assert shared("auto", batches_ahead=2)["window"] == 8
    assert shared("auto", batches_ahead=7)["window"] == 9


def test_a_sampler_is_for_the_agent_too(dataset):
    assert shared("auto", has_sampler=True)["agent"] == "auto"
    with pytest.raises(OSError, match="/nowhere/at"):
        DataLoader(dataset, 4, sampler=range(COUNT), agent="/nowhere/at/all")
