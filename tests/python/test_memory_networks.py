"""Recordings of usual networks: the analysis and the sentence."""

import pytest

torch = pytest.importorskip("torch")

import headrace.memory as memory  # noqa: E402


def said(path, tmp_path):
    """Returns the report's first paragraph in one line, and the whole report."""
    memory.write_text([path], tmp_path / "text")
    text = (tmp_path / "text").read_text()
    return " ".join(text.split("\n\n")[0].split()), text


def tiny_gpt(layers=6):
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        vocab_size=200, n_positions=32, n_embd=32, n_layer=layers, n_head=4, bos_token_id=0,
        eos_token_id=0)
    return transformers.GPT2LMHeadModel(config)


def steps(model, optimizer, count, lengths=(16,)):
    for number in range(count):
        ids = torch.randint(0, 200, (8, lengths[number % len(lengths)]))
        optimizer.zero_grad()
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()


@pytest.mark.parametrize("lengths", [(16,), (16, 9, 12, 7, 11, 8, 14)])
def test_iterations_of_a_transformer(tmp_path, lengths):
    """Its layers are alike; iterations are the optimizer's steps, whether those are alike or not.
    """
    model = tiny_gpt()
    optimizer = torch.optim.AdamW(model.parameters())
    with memory.record(tmp_path / "gpt.hrm"):
        steps(model, optimizer, 7, lengths)
    pattern = memory.analyse(tmp_path / "gpt.hrm")["pattern"]
    assert pattern["by_marks"] and pattern["iterations"] == 7
    assert pattern["same"] == (6 if len(lengths) == 1 else 0)  # the first allocates Adam's state
    _, text = said(tmp_path / "gpt.hrm", tmp_path)
    assert ("6 of 7 are the same" if len(lengths) == 1 else "7, no two of them the same") in text


def test_buckets_of_gradients(tmp_path):
    """The buckets in which DistributedDataParallel gathers gradients are not activations."""
    import torch.distributed as distributed

    if not distributed.is_available() or distributed.is_initialized():
        pytest.skip("no torch.distributed here")
    store = distributed.FileStore(str(tmp_path / "store"), 1)
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        inner = torch.nn.Sequential(torch.nn.Linear(100, 200), torch.nn.ReLU(),
                                    torch.nn.Linear(200, 100))
        weights = 4 * sum(p.numel() for p in inner.parameters())
        with memory.record(tmp_path / "ddp.hrm"):
            model = torch.nn.parallel.DistributedDataParallel(inner)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
            for _ in range(4):
                optimizer.zero_grad()
                model(torch.randn(5, 100)).sum().backward()
                optimizer.step()
    finally:
        distributed.destroy_process_group()
    found = memory.analyse(tmp_path / "ddp.hrm")
    peak = found["devices"][0]["peak"]
    assert peak["gradient"] >= 2 * weights - 8192  # the gradients, and the bucket
    assert peak.get("activation", 0) < weights / 2
    assert found["pattern"]["iterations"] == 4


def test_the_sentence_of_compiled_code(tmp_path):
    """The sentence names the recorded part before its figures."""
    model = torch.compile(torch.nn.Linear(50, 50), backend="eager")
    model(torch.ones(2, 50)).sum().backward()
    with memory.record(tmp_path / "compiled.hrm"):
        model(torch.ones(2, 50)).sum().backward()
    sentence, _ = said(tmp_path / "compiled.hrm", tmp_path)
    assert sentence.startswith("Run eagerly, without torch.compile: at its peak")


def test_the_sentence_hides_nothing_large(tmp_path):
    """The largest category comes first, and every category of at least a tenth is named."""
    model = torch.nn.Sequential(torch.nn.Linear(300, 300), torch.nn.Tanh(), torch.nn.Linear(300, 300))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x = torch.randn(250, 300)
    with memory.record(tmp_path / "named.hrm"):
        for _ in range(3):
            optimizer.zero_grad()
            model(x).pow(2).sum().backward()
            optimizer.step()
    device = memory.analyse(tmp_path / "named.hrm")["devices"][0]
    sentence, _ = said(tmp_path / "named.hrm", tmp_path)
    words = {"parameter": "parameters", "gradient": "gradients", "activation": "activations",
             "optimizer state": "optimizer state", "temporary": "temporaries", "input": "inputs",
             "unknown": "of unknown use", "workspace": "workspaces"}
    large = sorted((-size, name) for name, size in device["peak"].items()
                   if size >= 0.1 * device["peak_bytes"])
    assert len(large) > 3, "the network is to have many"
    named = sorted((sentence.index(words[name]), size) for size, name in large)
    sizes = [-size for _, size in named]
    assert sizes == sorted(sizes, reverse=True)
    assert "would fit" not in sentence  # into the host's memory
