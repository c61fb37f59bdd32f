# SPDX-License-Identifier: MIT
"""From text to tokens and back."""
from __future__ import annotations

import ctypes
from array import array
from ctypes import byref, c_uint64, c_void_p
from typing import Iterable, NamedTuple, Union

from . import _structs as s
from . import constants as c
from ._native import check, library, sized


class TokenizerInfo(NamedTuple):
    """Facts of a tokenizer; an id is -1 where the vocabulary has no such token."""

    model: str
    pre: str
    token_count: int
    bos_token: int
    eos_token: int
    unknown_token: int
    add_bos: bool
    add_eos: bool
    add_space: bool


class Tokenizer:
    """The tokenizer of a pack; it does not need the pack any longer."""

    def __init__(self, pack: c_void_p) -> None:
        """Takes a strata_pack pointer; Pack.tokenizer is the usual way."""
        self._handle = c_void_p()
        check(library().strata_tokenizer_create(pack, byref(self._handle)))

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            library().strata_tokenizer_destroy(self._handle)

    @property
    def info(self) -> TokenizerInfo:
        """Model, pattern, special tokens."""
        raw = sized(s.strata_tokenizer_info)
        check(library().strata_tokenizer_info_get(self._handle, byref(raw)))
        return TokenizerInfo(raw.model.decode(), raw.pre.decode(), raw.token_count, raw.bos_token,
                             raw.eos_token, raw.unknown_token, bool(raw.add_bos),
                             bool(raw.add_eos), bool(raw.add_space))

    def encode(self, text: Union[str, bytes], *, special: bool = False, bare: bool = False,
               replace_invalid: bool = False) -> list[int]:
        """
        The tokens of a text. `special`: texts of control tokens become these tokens; `bare`:
        nothing is put before or after; `replace_invalid`: bytes that are no UTF-8 become U+FFFD.
        """
        data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        options = sized(s.strata_encode_options)
        options.special = special
        options.bare = bare
        options.invalid_utf8 = (c.INVALID_UTF8_REPLACE if replace_invalid
                                else c.INVALID_UTF8_KEEP)
        capacity = len(data) + 8
        while True:
            tokens = array("i", bytes(4 * capacity))
            count = c_uint64()
            status = library().strata_tokenizer_encode(
                self._handle, data, len(data), byref(options), tokens.buffer_info()[0], capacity,
                byref(count))
            if status != c.ERR_BUFFER_TOO_SMALL:
                check(status)
                return tokens[:count.value].tolist()
            capacity = count.value

    def decode(self, tokens: Iterable[int], *, special: bool = False,
               continued: bool = False) -> bytes:
        """
        The bytes that tokens stand for; they may begin or end within a character. `special`:
        control tokens are written out; `continued`: the tokens continue a text.
        """
        ids = array("i", list(tokens))
        options = sized(s.strata_decode_options)
        options.special = special
        options.continued = continued
        needed = c_uint64()
        arguments = (self._handle, ids.buffer_info()[0] if ids else None, len(ids), byref(options))
        check(library().strata_tokenizer_decode(*arguments, None, 0, byref(needed)))
        text = ctypes.create_string_buffer(max(needed.value, 1))
        check(library().strata_tokenizer_decode(*arguments, text, len(text), byref(needed)))
        return text.raw[:needed.value]
