"""examples/copying_penalty.py: the ratio and the error rate by hand, and the penalty with generate."""

import contextlib
import importlib.util
import math

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def example(root):
    with contextlib.suppress(ImportError):  # transformers imports torchvision if it is installed
        import torchvision_shim

        torchvision_shim.prepare()
    spec = importlib.util.spec_from_file_location("copying", root / "examples" / "copying_penalty.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SOURCE = "But Marshal Hussein Tantawi stayed in office."
OUTPUT = "Doch Marshal Hussein Tantawi blieb im Amt."
REFERENCE = "Doch Feldmarschall Hussein Tantawi blieb im Amt."


def test_ratio_and_error_rate(example):
    # The case of the paper's table 2: three words copied of seven, one of them wrongly.
    assert example.copying_ratio([SOURCE], [OUTPUT]) == 3 / 7
    assert example.copying_error_rate([SOURCE], [OUTPUT], [REFERENCE]) == 1 / 3
    # Over all sentences, not the mean of their ratios.
    assert example.copying_ratio([SOURCE, "a b"], [OUTPUT, "x"]) == 3 / 8
    assert example.copying_error_rate([SOURCE, "a"], [OUTPUT, "a"], [REFERENCE, "a"]) == 1 / 4
    assert example.copying_ratio([""], [""]) == example.copying_error_rate(["a"], ["b"], ["c"]) == 0


def test_punctuation_is_no_word(example):
    assert example.words("Ja, \u201ewirklich\u201c - so! \u2026") == ["Ja", "wirklich", "so"]
    assert example.copying_ratio(["a , b ."], ["x , y ."]) == 0


def test_repeated_words(example):
    assert example.copying_ratio(["a b"], ["a a c a"]) == 3 / 4
    assert example.copying_ratio(["a b"], ["a a c a"], multiset=True) == 1 / 4
    assert example.copying_error_rate(["a a"], ["a a"], ["a"]) == 0
    assert example.copying_error_rate(["a a"], ["a a"], ["a"], multiset=True) == 1 / 2


def test_penalty_by_hand(example):
    """Four tokens, 0 ends a sentence and 1 is a comma; the source is 2 2 1 0."""
    scores = torch.log(torch.tensor([[0.1, 0.2, 0.4, 0.3]]))
    penalty = example.CopyingPenalty(torch.tensor([[2, 2, 1, 0]]), 0.5, exempt=(0, 1))
    found = penalty(None, scores).exp()
    assert torch.allclose(found, torch.tensor([[0.1, 0.2, 0.2, 0.3]]))
    assert found.argmax() == 3
    none = example.CopyingPenalty(torch.tensor([[2, 2, 1, 0]]), 1, exempt=(0, 1))
    assert none(None, scores) is scores
    forbidden = example.CopyingPenalty(torch.tensor([[2, 2, 1, 0]]), 0, exempt=(0, 1))
    assert forbidden(None, scores)[0, 2] == -math.inf


def test_beams_have_the_source_of_their_sentence(example):
    sources = torch.tensor([[2, 2], [3, 1]])
    scores = torch.zeros(4, 5)
    found = example.CopyingPenalty(sources, math.exp(-1))(None, scores)
    assert torch.allclose(found, torch.tensor([
        [0, 0, -1, 0, 0], [0, 0, -1, 0, 0], [0, -1, 0, -1, 0], [0, -1, 0, -1, 0]], dtype=torch.float32))  # fmt: skip


@pytest.mark.parametrize("beams", [1, 3])
def test_generate(example, beams):
    model = example.network(32)
    sources = torch.randint(2, 32, (8, 10), generator=torch.Generator().manual_seed(3))

    def generate(*processors):
        with torch.no_grad():
            return model.generate(
                sources, num_beams=beams, do_sample=False, max_new_tokens=8,
                logits_processor=transformers.LogitsProcessorList(processors))  # fmt: skip

    def ratio(outputs):
        return example.copying_ratio([example.text(r) for r in sources], [example.text(r) for r in outputs])

    plain = generate()
    assert torch.equal(generate(example.CopyingPenalty(sources, 1, (0, 1))), plain)
    assert 0 < ratio(plain) < 1
    assert ratio(generate(example.CopyingPenalty(sources, 0, (0, 1)))) == 0
    more = generate(example.CopyingPenalty(sources, 1e6, (0, 1)))
    assert ratio(more) == 1


def test_exempt_tokens(example):
    class Tokenizer:
        all_special_ids = [0, 1]

        def get_vocab(self):
            return {"<pad>": 0, "</s>": 1, "\u2581,": 2, ".": 3, "\u2581a": 4, "...": 5, "\u0120!": 6, "\u2581": 7}

    assert example.exempt_tokens(Tokenizer()) == [0, 1, 2, 3, 6]


def test_refusals(example):
    with pytest.raises(ValueError, match="alpha is -1"):
        example.CopyingPenalty(torch.zeros(1, 1, dtype=torch.long), -1)
    with pytest.raises(ValueError, match="1 dimensions"):
        example.CopyingPenalty(torch.zeros(3, dtype=torch.long), 1)
    penalty = example.CopyingPenalty(torch.zeros(2, 1, dtype=torch.long), 0.5)
    with pytest.raises(ValueError, match="3 rows"):
        penalty(None, torch.zeros(3, 4))
