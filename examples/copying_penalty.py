"""How much a translation copies from its source, and a penalty that lowers it, for Hugging Face's
generate. "On the Copying Behaviors of Pre-Training for Neural Machine Translation", Findings of
ACL 2021.

    outputs = model.generate(
        **inputs, num_beams=4,
        logits_processor=LogitsProcessorList([CopyingPenalty(inputs["input_ids"], 0.7, exempt)]))

The copying ratio is the share of output tokens that are in the source, over all sentences; the
copying error rate is the share of these that are not in the reference. Both count words without
punctuation. The paper does not say how repeated words count. Here every occurrence in the output
counts if the source has the word at all (sets); with multiset=True only as often as the source has
it.

The penalty multiplies the probability of each source token by alpha at every step, without
normalising again: alpha below 1 copies less, above 1 more; 0 forbids it. Tokens that appear several
times in the source are penalised once. Punctuation and special tokens are exempt. In beam search
the scores are log-probabilities, as in the paper; greedy search chooses the same; sampling
normalises the scores after the penalty.

Run as a script, it translates random sentences with a random network, to show the ratio over alpha:

    python examples/copying_penalty.py
"""

import argparse
import math
import unicodedata
from collections import Counter

import torch
from transformers import LogitsProcessor, LogitsProcessorList


def words(sentence):
    """The words of a sentence without their punctuation (Unicode's category P)."""
    bare = ("".join(c for c in word if not is_punctuation(c)) for word in sentence.split())
    return [word for word in bare if word]


def is_punctuation(character):
    return unicodedata.category(character).startswith("P")


def copied(source, output, multiset=False):
    """The words of the output that are copies, in their order."""
    left = Counter(words(source))
    found = []
    for word in words(output):
        if left[word] > 0:
            found.append(word)
            left[word] -= multiset
    return found


def copying_ratio(sources, outputs, multiset=False):
    """Copied words over all words of the outputs; 0 if there are none."""
    pairs = list(zip(sources, outputs, strict=True))
    copies = sum(len(copied(source, output, multiset)) for source, output in pairs)
    return copies / max(1, sum(len(words(output)) for _, output in pairs))


def copying_error_rate(sources, outputs, references, multiset=False):
    """Copied words that are not in the reference, over copied words; 0 if nothing is copied."""
    wrong = total = 0
    for source, output, reference in zip(sources, outputs, references, strict=True):
        right = Counter(words(reference))
        for word in copied(source, output, multiset):
            total += 1
            wrong += right[word] <= 0
            right[word] -= multiset
    return wrong / max(1, total)


def exempt_tokens(tokenizer):
    """The ids of a tokenizer's special tokens and of single punctuation characters."""
    special = set(tokenizer.all_special_ids)
    marks = "\u2581\u0120"  # what SentencePiece and byte-level BPE write for a blank
    single = {
        number for token, number in tokenizer.get_vocab().items()
        if len(token.strip(marks)) == 1 and is_punctuation(token.strip(marks))
    }
    return sorted(special | single)


class CopyingPenalty(LogitsProcessor):
    """Multiplies the probabilities of source tokens by alpha.

    source_ids: token ids of the sources, [sentences, length], as the encoder gets them. exempt: ids
    that keep their probabilities: punctuation, end of sentence, padding (exempt_tokens).
    """

    def __init__(self, source_ids, alpha, exempt=()):
        if not (alpha >= 0 and math.isfinite(alpha)):
            raise ValueError(f"alpha is {alpha}: it must be a number from 0 on")
        if source_ids.dim() != 2:
            raise ValueError(f"source_ids has {source_ids.dim()} dimensions: it must have 2, "
                             "[sentences, length]")
        self.source_ids = source_ids
        self.log_alpha = math.log(alpha) if alpha else -math.inf
        self.exempt = torch.tensor(sorted(exempt), dtype=torch.long)

    def __call__(self, input_ids, scores):
        sentences, rows = len(self.source_ids), len(scores)
        if rows % sentences:
            raise ValueError(f"{rows} rows of scores are no multiple of the {sentences} sources: "
                             "give the sources of this batch")
        if not self.log_alpha:  # alpha 1: nothing changes, not even a rounding
            return scores
        in_source = torch.zeros(sentences, scores.shape[1], dtype=torch.bool, device=scores.device)
        in_source.scatter_(1, self.source_ids.to(scores.device), True)
        in_source[:, self.exempt.to(scores.device)] = False
        # generate() puts the beams of a sentence one after another.
        in_source = in_source.repeat_interleave(rows // sentences, 0)
        return torch.where(in_source, scores + self.log_alpha, scores)


def network(vocabulary):
    """A small T5 of random weights, from a configuration."""
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(0)
    return T5ForConditionalGeneration(T5Config(
        vocab_size=vocabulary, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4,
        decoder_start_token_id=0, pad_token_id=0, eos_token_id=1)).eval()


def text(row, special=(0, 1)):
    return " ".join(f"w{token}" for token in row.tolist() if token not in special)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sentences", type=int, default=64)
    parser.add_argument("--beams", type=int, default=4)
    parser.add_argument("--alpha", type=float, nargs="+", default=[0, 0.5, 0.7, 1, 1.2, 1.5])
    args = parser.parse_args()
    vocabulary = 64
    model = network(vocabulary)
    sources = torch.randint(2, vocabulary, (args.sentences, 12))
    print("The network is random: only the change of the ratio means something.")
    for alpha in args.alpha:
        penalty = CopyingPenalty(sources, alpha, exempt=(0, 1))
        with torch.no_grad():
            outputs = model.generate(
                sources, num_beams=args.beams, do_sample=False, max_new_tokens=12,
                logits_processor=LogitsProcessorList([penalty]))
        ratio = copying_ratio([text(row) for row in sources], [text(row) for row in outputs])
        print(f"alpha {alpha:.1f}: copying ratio {ratio:.3f}")


if __name__ == "__main__":
    main()
