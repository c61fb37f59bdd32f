# SPDX-License-Identifier: MIT
"""Seeded text for tokenizer tests: a corpus to train on, and lines of every awkward kind."""
from __future__ import annotations

import random
import unicodedata

# Letters by script: first and last code point of a run of assigned ones.
SCRIPTS = {
    "cyrillic": (0x430, 0x44F), "greek": (0x3B1, 0x3C9), "hebrew": (0x5D0, 0x5EA),
    "arabic": (0x627, 0x63A), "devanagari": (0x905, 0x939), "thai": (0xE01, 0xE2E),
    "georgian": (0x10D0, 0x10F0), "armenian": (0x561, 0x586), "hiragana": (0x3041, 0x3093),
    "katakana": (0x30A1, 0x30F4), "han": (0x4E00, 0x4EFF), "hangul": (0xAC00, 0xAD00),
    "tamil": (0xB85, 0xB8A), "ethiopic": (0x1200, 0x1248), "cherokee": (0x13A0, 0x13EF),
    "deseret": (0x10400, 0x1044F), "fullwidth": (0xFF21, 0xFF3A), "latin": (0xC0, 0xFF),
    "extended": (0x100, 0x24F), "cjk_b": (0x20000, 0x20100), "gothic": (0x10330, 0x10340),
}
UNSPACED = ("han", "hiragana", "katakana", "thai", "cjk_b")
SPACES = ("\t\n\v\f\r \x1c\x1d\x1f\x85\xa0\u1680\u180e\u2000\u2003\u2009\u200b\u2028\u2029\u202f"
          "\u205f\u3000\ufeff")
NUMBERS = "0123456789\u0660\u0661\u0969\u0ed2\uff10\uff15\u2167\u216e\xbd\xb2\u2460\u3007\u4e09\U0001d7d8"
MARKS = ("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~\xa1\xab\xbb\xbf\u2018\u2019\u201c\u201d\u2014"
         "\u2026\u3001\u3002\uff01\u20ac\xa7\xb6\xa9\xd7")
EMOJI = ["\U0001F600", "\U0001F44D\U0001F3FD", "\u2764\uFE0F", "\U0001F1E9\U0001F1EA",
         "\U0001F468\u200D\U0001F469\u200D\U0001F467", "\u26A1", "\U0001F680", "1\uFE0F\u20E3"]
CLITICS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'T", "'Re", "'VE", "'M", "'LL", "'D", "'\u017f",
           "\u2019s", "'x", "'", "''s", "'lL"]
CODE = ["for (int i = 0; i < {n}; i++) {{\n    {a}[i] += {b}->{c}(i, &{a}); // {n}\n}}\n",
        "def {a}_{b}(self, {c}=None):\n\treturn self.{b}[{n}:-1] if {c} else '{a}'\n",
        "<div class=\"{a}-{b}\"><p>{c}</p></div>", "SELECT {a}, {b} FROM {c} WHERE id = {n};",
        "https://www.{a}.org/{b}?q={c}&n={n}#x", "{{\"{a}\": [{n}, null], \"{b}\": \"{c}\\n\"}}",
        "#include <{a}/{b}.h>\r\n#define {c} 0x{n:x}ULL\r\n", "\\frac{{{a}}}{{{b}_{{{n}}}}} $${c}$$",
        "{a}.{b}::{c}<T>(); a/b//c\n/n/r !!{n}%"]
ENGLISH = ("the of and to in a is that it was for on are as with his they at be this from have or by one had not but "
           "what all were when we there can an your which their said if do will each about how up out them then she "
           "many some so these would other into has more her two like him see time could no make than first been its "
           "who now people my made over did down only way find use may water long little very after words called "
           "just where most know chapters pharaoh baker captain garden sensible manner income").split()


class Maker:
    """Words and lines; the same seed gives the same ones."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.words = {name: [self._coin(*span) for _ in range(150)] for name, span in SCRIPTS.items()}
        self.assigned = [p for p in range(0x20, 0x1FB00) if unicodedata.category(chr(p)) not in ("Cn", "Cs", "Co")
                         and p not in range(0x4E00, 0x9FFF) and p not in range(0xAC00, 0xD7A4)]

    def _coin(self, first: int, last: int) -> str:
        return "".join(chr(self.random.randint(first, last)) for _ in range(self.random.randint(1, 7)))

    def pick(self, items):
        """Low indices more often, as words of a language are."""
        return items[min(int(self.random.paretovariate(0.7)) - 1, 10 ** 6) % len(items)]

    def english(self) -> str:
        words = [self.pick(ENGLISH) for _ in range(self.random.randint(2, 14))]
        for at in range(len(words)):
            kind = self.random.random()
            if kind < 0.1:
                words[at] = words[at].capitalize()
            elif kind < 0.15:
                words[at] = words[at].upper()
            elif kind < 0.2:
                words[at] += self.random.choice(CLITICS)
        return " ".join(words) + self.random.choice(["", ".", "?", "!", ",", "...", ".\n", ";\r\n"])

    def script(self) -> str:
        name = self.random.choice(list(SCRIPTS))
        between = "" if name in UNSPACED else " "
        return between.join(self.pick(self.words[name]) for _ in range(self.random.randint(1, 8)))

    def spaces(self) -> str:
        runs = []
        for _ in range(self.random.randint(1, 5)):
            space = self.random.choice(SPACES) if self.random.random() < 0.5 else " "
            runs.append(space * self.random.randint(1, 9) + self.random.choice(["", "", "a", "\n", "\u5b57", "7", "-"]))
        return "".join(runs)

    def numbers(self) -> str:
        length = self.random.randint(1, 12)
        digits = NUMBERS[:10] if self.random.random() < 0.6 else NUMBERS
        text = "".join(self.random.choice(digits) for _ in range(length))
        before = self.random.choice(["", " ", "$", "v", "-"])
        return before + text + self.random.choice(["", ".5", "%", " km", "th", "\n"])

    def clitics(self) -> str:
        words = ["I", "you", "it", " we", "DON", "\xe9", "1", "_"]
        return "".join(self.random.choice(words) + self.random.choice(CLITICS) + self.random.choice(["", " ", "y"])
                       for _ in range(self.random.randint(1, 5)))

    def code(self) -> str:
        names = {key: self.pick(ENGLISH) for key in "abc"}
        return self.random.choice(CODE).format(n=self.random.randint(0, 99999), **names)

    def emoji(self) -> str:
        return "".join(self.random.choice(EMOJI) + self.random.choice(["", " ", "x"])
                       for _ in range(self.random.randint(1, 5)))

    def marks(self) -> str:
        between = ["", "", " ", "\n", "b"]
        return "".join(self.random.choice(MARKS) * self.random.randint(1, 3) + self.random.choice(between)
                       for _ in range(self.random.randint(1, 6)))

    def accents(self) -> str:
        text = self.english() + "\u1e9e\u01c5\u0130\u0131\ufb01\u212a\u0149"
        if self.random.random() < 0.5:
            return unicodedata.normalize("NFD", text.replace("e", "\xe9").replace("o", "\xf6"))
        return text.replace("e", "\xe9").replace("a", "A\u0301").replace("n", "\u02b0\xf1")

    def anything(self) -> str:
        return "".join(chr(self.random.choice(self.assigned)) for _ in range(self.random.randint(1, 16)))

    def cases(self) -> str:
        return self.random.choice(["", " ", "_"]).join(
            self.random.choice([str.upper, str.lower, str.title, str.swapcase])(self.pick(ENGLISH))
            for _ in range(self.random.randint(1, 7)))

    def special(self) -> str:
        return self.random.choice(["", " ", "a"]).join(
            self.random.choice(["<|end|>", "<|endoftext|>", "<|end", "<s>", "</s>", "<tool>", "<tool><x>", "  "])
            + self.random.choice(["", "hello", " the", "\n"]) for _ in range(self.random.randint(1, 4)))

    def mixed(self) -> str:
        makers = [self.english, self.script, self.spaces, self.numbers, self.code, self.emoji, self.marks, self.clitics]
        return "".join(self.random.choice(makers)() for _ in range(self.random.randint(2, 5)))

    def long(self) -> str:
        return self.random.choice(["a", "\u4e00", " ", "\n", "ab", "\u0416", "-", "9", "the ", "A", "\u0301"]) * \
            self.random.randint(30, 300)

    def invalid(self) -> bytes:
        data = bytearray(self.mixed().encode("utf-8", "ignore"))
        for _ in range(self.random.randint(1, 6)):
            bad = self.random.choice([b"\xff", b"\x80\x80", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xed\xa0\x80",
                                      b"\xc0\xaf", b"\xe0\x80\x80", b"\xf4\x90\x80\x80", b"\xf8\x88", b"\xe2\x28\xa1",
                                      bytes(self.random.randrange(128, 256) for _ in range(4))])
            at = self.random.randrange(len(data) + 1)
            data[at:at] = bad
        return bytes(data)

    def lines(self, count: int) -> list[bytes]:
        """All kinds in turn, so that any beginning has them all."""
        kinds = [self.english, self.script, self.spaces, self.numbers, self.clitics, self.code, self.emoji, self.marks,
                 self.accents, self.anything, self.cases, self.special, self.mixed, self.invalid, self.long]
        made = [b"", b" ", b"\n", b"\0", b"\xff"]
        while len(made) < count:
            kind = kinds[len(made) % len(kinds)] if len(made) % 97 else self.long
            if kind == self.long and len(made) % 5:
                kind = self.mixed
            line = kind()
            made.append(line if isinstance(line, bytes) else line.encode())
        return made

    def corpus(self, count: int) -> list[str]:
        kinds = [self.english] * 4 + [self.script] * 4 + [self.code] * 2 + [self.numbers, self.clitics, self.marks,
                                                                           self.emoji, self.accents, self.spaces]
        return [self.random.choice(kinds)() for _ in range(count)]
