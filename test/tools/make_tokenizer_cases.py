#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
Compares the library's tokenizers with the `tokenizers` package of Hugging Face.

  make_tokenizer_cases.py check [NAME...]      10,000 lines for every pattern, vocabularies of 8,192
  make_tokenizer_cases.py write DIRECTORY      the smaller cases that test-golden-text replays

A vocabulary is trained for each pattern on seeded text. `check` needs the Python binding and the library
(PYTHONPATH, STRATA_LIBRARY). The expressions are those of the models' tokenizer.json files, in the notation of
the package's own engine.

lines.bin: uint32 count, then for each line uint32 bytes and the bytes. NAME.gguf: a vocabulary without a model.
NAME.ids: for each line uint32 tokens and uint16 ids, little-endian. Special tokens in the lines are tokens, nothing
is added before or after, ill-formed bytes are what bytes.decode("utf-8", "replace") makes of them.
"""
from __future__ import annotations

import collections
import json
import pathlib
import struct
import sys
import tempfile

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from gguf_file import Header
from tokenizer_text import Maker

CLITICS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
PREFIX = r"[^\r\n\p{L}\p{N}]?"
CASED = ("A-Za-z\xb5\xc0-\xd6\xd8-\xf6\xf8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377"
         "\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556"
         "\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a"
         "\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4"
         "\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec"
         "\u1ff2-\u1ff4\u1ff6-\u1ffc"
         "\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f"
         "\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b"
         "\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a"
         "\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2"
         "\U000118a0-\U000118df\U0001e900-\U0001e943")
EAST_ASIAN = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"

# Name of tokenizer.ggml.pre: expressions, each applied to the pieces of the one before; None: GPT-2's own.
PATTERNS = {
    "default": None,
    "olmo": None,
    "qwen2": [CLITICS + "|" + PREFIX + r"\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + TAIL],
    "llama-bpe": [CLITICS + "|" + PREFIX + r"\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + TAIL],
    "gpt-4o": [f"{PREFIX}{UPPER}*{LOWER}+{CLITICS}?|{PREFIX}{UPPER}+{LOWER}*{CLITICS}?|" +
               r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + TAIL],
    "glm4": [CLITICS + "|" + PREFIX + r"\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + TAIL],
    "bailingmoe2": [r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|"
                    r"\s*[\r\n]|\s+(?!\S)|\s+"],
    "refact": None,
    "deepseek-llm": ["[\r\n]", rf"\s?[{CASED}]+",
                     "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+", r"\s+$", EAST_ASIAN,
                     r"\p{N}+"],
    "deepseek-coder": ["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", EAST_ASIAN, r"\p{N}"],
    "deepseek-v3": [r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
                    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"
                    r" ?[\p{P}\p{S}]+[\r\n]*|" + TAIL],
}
SENTENCEPIECE = ("llama", "llama-across")
CONTROL = ["<|endoftext|>", "<|end|>", "<s>", "</s>"]
USER = ["<tool>"]
NORMAL_TYPE, UNKNOWN_TYPE, CONTROL_TYPE, USER_TYPE, BYTE_TYPE = 1, 2, 3, 4, 6
TRAINING_SEED, LINES_SEED = 1, 2


def added():
    return [AddedToken(text, normalized=False, special=text in CONTROL) for text in CONTROL + USER]


def byte_pairs(name, size):
    """The package's tokenizer and the vocabulary as GGUF has it."""
    splits = PATTERNS[name]
    model = models.BPE(ignore_merges=name == "llama-bpe")
    tokenizer = Tokenizer(model)
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=splits is None)
    stages = [pre_tokenizers.Split(Regex(text), "isolated") for text in splits or []]
    if name == "refact":
        stages = [pre_tokenizers.Digits(individual_digits=True)]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*stages, level])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=size - len(CONTROL + USER), show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator(Maker(TRAINING_SEED).corpus(40000), trainer)
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in merges]
    tokenizer.add_tokens(added())
    count = tokenizer.get_vocab_size()
    tokens = [tokenizer.id_to_token(index) for index in range(count)]
    header = start("gpt2", tokens, [NORMAL_TYPE] * (count - len(CONTROL + USER)) + special_types())
    header.string("tokenizer.ggml.pre", name)
    header.string_array("tokenizer.ggml.merges", merges)
    return tokenizer, header


def special_types():
    return [CONTROL_TYPE] * len(CONTROL) + [USER_TYPE] * len(USER)


def start(model, tokens, types):
    header = Header()
    header.string("general.architecture", "vocabulary")
    header.string("tokenizer.ggml.model", model)
    header.string_array("tokenizer.ggml.tokens", tokens)
    header.int32_array("tokenizer.ggml.token_type", types)
    return header


def trained_pieces(size):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokenizer.pre_tokenizer = pre_tokenizers.Split("\u2581", "merged_with_next")
    corpus = Maker(TRAINING_SEED).corpus(40000)
    trainer = trainers.BpeTrainer(vocab_size=size + 5000, show_progress=False)
    tokenizer.train_from_iterator(corpus, trainer)
    pieces = [tokenizer.id_to_token(index) for index in range(tokenizer.get_vocab_size())]
    merged = [piece for piece in pieces if len(piece) > 1][:size - 500]
    # The characters that pieces are made of, and the most frequent others: the rest is spelled in bytes.
    counts = collections.Counter(character for text in corpus for character in text.replace(" ", "\u2581"))
    frequent = [character for character, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
    single = dict.fromkeys([*frequent[:300], *(character for piece in merged for character in piece)])
    return merged, list(single)


def sentencepiece(name, size):
    """Scores fall in the order of the pieces; the package gets every split of a piece as a merge, in that order."""
    merged, single = trained_pieces(size - 259 - len(CONTROL + USER))
    merged[3:3] = ["\u2581" * 2, "\u2581" * 4, "\u2581" * 8, "\u2581" * 3]
    if name == "llama-across":
        merged[40:40] = ["of\u2581the", "e\u2581", "\u2581a\u2581"]
    merged = list(dict.fromkeys(merged))
    single = list(dict.fromkeys(single + ["\u2581"]))
    control = ["<s>", "</s>"]
    others = [text for text in CONTROL + USER if text not in control]
    tokens = ["<unk>", *control, *(f"<0x{byte:02X}>" for byte in range(256)), *merged, *single, *others]
    ids = {token: index for index, token in enumerate(tokens)}
    scores = [0.0] * 259 + [-float(rank) for rank in range(len(merged) + len(single))] + [0.0] * len(others)
    merges = []
    for piece in merged:
        splits = [(piece[:at], piece[at:]) for at in range(1, len(piece))]
        splits = [(left, right) for left, right in splits if left in ids and right in ids]
        merges += sorted(splits, key=lambda pair: (len(pair[0]), len(pair[1])), reverse=True)
    tokenizer = Tokenizer(models.BPE(ids, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    tokenizer.add_tokens(added())
    types = [UNKNOWN_TYPE, CONTROL_TYPE, CONTROL_TYPE] + [BYTE_TYPE] * 256
    types += [NORMAL_TYPE] * (len(merged) + len(single)) + [USER_TYPE if t in USER else CONTROL_TYPE for t in others]
    header = start("llama", tokens, types)
    header.float32_array("tokenizer.ggml.scores", scores)
    header.uint32("tokenizer.ggml.bos_token_id", 1)
    header.uint32("tokenizer.ggml.eos_token_id", 2)
    header.uint32("tokenizer.ggml.unknown_token_id", 0)
    return tokenizer, header


def make(name, size):
    return sentencepiece(name, size) if name in SENTENCEPIECE else byte_pairs(name, size)


def expected(tokenizer, lines):
    return [tokenizer.encode(line.decode("utf-8", "replace"), add_special_tokens=False).ids for line in lines]


def report(line, mine, theirs, reference):
    print(f"    {line!r}\n      here  {[reference.id_to_token(t) for t in mine]}\n"
          f"      there {[reference.id_to_token(t) for t in theirs]}")


def check_pattern(name, lines):
    import strata
    reference, header = make(name, 8192)
    different = lost = 0
    with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
        file.write(header.encode()[0])
        file.flush()
        with strata.Pack(file.name) as pack:
            tokenizer = pack.tokenizer
            for line, ids in zip(lines, expected(reference, lines)):
                mine = tokenizer.encode(line, special=True, bare=True, replace_invalid=True)
                if mine != ids:
                    different += 1
                    if different <= 3:
                        report(line, mine, ids, reference)
                kept = tokenizer.encode(line, special=True, bare=True)
                back = tokenizer.decode(kept, special=True)
                # SentencePiece writes a space before every text that follows a special token.
                if name not in SENTENCEPIECE and back != line:
                    lost += 1
    print(f"{name}: {len(lines)} lines, {different} different, {lost} not decoded to themselves")
    return different + lost


def check(names):
    lines = Maker(LINES_SEED).lines(10000)
    faults = sum(check_pattern(name, lines) for name in names or [*PATTERNS, *SENTENCEPIECE])
    return 1 if faults else 0


def write(folder):
    lines = Maker(LINES_SEED).lines(2000)
    packed = b"".join(struct.pack("<I", len(line)) + line for line in lines)
    (folder / "lines.bin").write_bytes(struct.pack("<I", len(lines)) + packed)
    for name in [*PATTERNS, *SENTENCEPIECE]:
        reference, header = make(name, 2048)
        (folder / f"{name}.gguf").write_bytes(header.encode()[0])
        ids = b"".join(struct.pack(f"<I{len(line)}H", len(line), *line) for line in expected(reference, lines))
        (folder / f"{name}.ids").write_bytes(ids)
        print(f"{name}: {reference.get_vocab_size()} tokens")
    return 0


def main():
    if len(sys.argv) >= 2 and sys.argv[1] == "check":
        return check(sys.argv[2:])
    if len(sys.argv) == 3 and sys.argv[1] == "write":
        return write(pathlib.Path(sys.argv[2]))
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
