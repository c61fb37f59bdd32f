#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Text and vocabulary of the bundled model.

Sources, all from Debian 12 packages:
  bible-kjv, bible-kjv-text   the King James Version, printed by the `bible` program
  r-cran-janeaustenr          Jane Austen's six novels

    python3 prepare.py --out DIR      writes train.txt, valid.txt, test.txt, tokenizer.json and the
    token ids as *.bin (uint16)

Needs: pip install tokenizers numpy; apt-get install bible-kjv bible-kjv-text r-cran-janeaustenr

Every 40th chapter, counted over the whole text from chapter 19, goes to valid.txt; every 40th from
chapter 39 goes to test.txt. Neither is trained on. Chapters are separated by END, which the
tokenizer turns into one token. The vocabulary is a byte-level byte-pair one of VOCABULARY tokens,
with the pre-tokeniser that GGUF files call "qwen2".
"""

import argparse
import pathlib
import re
import struct
import subprocess
import zlib

import numpy
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY = 1536
END = "<|endoftext|>"
AUSTEN = pathlib.Path("/usr/lib/R/site-library/janeaustenr/data/Rdata.rdb")


def bible_chapters():
    """One string per chapter: its verses, joined into a paragraph, without their numbers."""
    printed = subprocess.run(
        ["bible", "-f", "gen1:1-rev22:21"], capture_output=True, text=True, check=True
    ).stdout
    chapters = {}
    for line in printed.splitlines():
        match = re.match(r"(\S+?)(\d+):(\d+) (.*)", line)
        chapters.setdefault(match.group(1, 2), []).append(match.group(4).strip())
    return [" ".join(verses) for verses in chapters.values()]


def r_strings(serialised):
    """
    The strings of an R character vector in XDR serialisation, as a data file of an R package stores
    it.
    """
    at = 14 if serialised[:2] == b"X\n" else 0
    version = struct.unpack_from(">i", serialised, 2)[0]
    if version == 3:
        at += 4 + struct.unpack_from(">i", serialised, at)[0]
    kind, count = struct.unpack_from(">ii", serialised, at)
    assert kind & 255 == 16, "not a character vector"
    at += 8
    for _ in range(count):
        flags, length = struct.unpack_from(">ii", serialised, at)
        assert flags & 255 == 9, "not a string"
        yield serialised[at + 8 : at + 8 + length].decode("utf-8")
        at += 8 + length


def austen_chapters(path):
    """One string per chapter of the six novels: paragraphs on one line each."""
    data = path.read_bytes()
    chapters = []
    while data:
        novel = zlib.decompressobj()
        lines = list(
            r_strings(novel.decompress(data[4:]))
        )  # the first 4 bytes are the size when unpacked
        data = novel.unused_data
        text = "\n".join(line.rstrip() for line in lines)
        # What precedes the first heading is the title page; what follows the last chapter is "FINIS" or "THE END".
        parts = re.split(r"\n\s*chapter [0-9ivxlc]+\.?\s*\n", "\n" + text, flags=re.IGNORECASE)[1:]
        for part in parts:
            part = re.sub(r"\n\s*(volume|vol\.) [ivx0-9]+.*", "", part, flags=re.IGNORECASE)
            part = re.sub(r"\n\s*(finis|the end)\.?\s*", "\n", part, flags=re.IGNORECASE)
            paragraphs = [" ".join(p.split()) for p in re.split(r"\n\s*\n", part)]
            chapters.append("\n\n".join(p for p in paragraphs if p))
    return chapters


def plain(text):
    """ASCII quotes and dashes, no emphasis marks: the model is small."""
    for old, new in (
        ("\u2019", "'"),
        ("\u2018", "'"),
        ("\u201c", '"'),
        ("\u201d", '"'),
        ("\u2014", "--"),
        ("_", ""),
    ):
        text = text.replace(old, new)
    return re.sub(r" {2,}", " ", text).strip()


PRE_TOKENISER = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def train_tokenizer(text):
    """256 bytes, then merges, then END as the last id."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRE_TOKENISER), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        text.split(END),
        trainers.BpeTrainer(
            vocab_size=VOCABULARY - 1,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    tokenizer.add_special_tokens([END])
    assert tokenizer.get_vocab_size() == VOCABULARY
    return tokenizer


def main():
    args = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    args.add_argument("--out", type=pathlib.Path, required=True)
    args.add_argument("--austen", type=pathlib.Path, default=AUSTEN)
    args = args.parse_args()
    split = {"train": [], "valid": [], "test": []}
    for index, chapter in enumerate(bible_chapters() + austen_chapters(args.austen)):
        split[{19: "valid", 39: "test"}.get(index % 40, "train")].append(plain(chapter))
    args.out.mkdir(parents=True, exist_ok=True)
    texts = {name: END.join(chapters) + END for name, chapters in split.items()}
    tokenizer = train_tokenizer(texts["train"])
    tokenizer.save(str(args.out / "tokenizer.json"))
    for name, text in texts.items():
        (args.out / f"{name}.txt").write_text(text, encoding="utf-8")
        ids = numpy.array(tokenizer.encode(text).ids, dtype=numpy.uint16)
        ids.tofile(args.out / f"{name}.bin")
        print(f"{name}: {len(split[name])} chapters, {len(text.encode())} bytes, {len(ids)} tokens")


if __name__ == "__main__":
    main()
