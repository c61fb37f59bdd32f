# SPDX-License-Identifier: MIT
"""Choosing the next token from logits."""
from __future__ import annotations

from array import array
from ctypes import byref, c_float, c_int32, c_uint64
from typing import Sequence, TypedDict

from . import _structs as s
from ._native import check, library, sized


class SamplingOptions(TypedDict, total=False):
    """How tokens are chosen; everything may be left out."""

    temperature: float
    """0: always the likeliest token; 1: the model's own chances; 0.8 unless told."""
    top_k: int
    """Only the k likeliest; 0, unless told: all."""
    top_p: float
    """Only the likeliest that have this probability together; 0.95 unless told; 1: all."""
    min_p: float
    """Only what has this part of the likeliest's probability; 0, unless told: all."""
    repetition_penalty: float
    """Above 1: tokens that came before are less likely; 1, unless told: they are not."""
    repeat_last: int
    """Tokens that the penalty looks back at; 64 unless told."""
    seed: int
    """The same seed gives the same choices; 1 unless told."""


class Sampler:
    """Chooses tokens, one draw after the other, by SamplingOptions."""

    def __init__(self, *, temperature: float = 0.8, top_k: int = 0, top_p: float = 0.95,
                 min_p: float = 0.0, repetition_penalty: float = 1.0, repeat_last: int = 64,
                 seed: int = 1) -> None:
        if repeat_last < 0:
            raise ValueError(f"repeat_last is {repeat_last}")
        options = sized(s.strata_sample_options)
        options.temperature = temperature
        options.top_k = top_k
        options.top_p = top_p
        options.min_p = min_p
        options.repetition_penalty = repetition_penalty
        self._options = options
        self._recent = repeat_last
        self._state = c_uint64(s.uint64.from_param(seed).value)
        # One choice of nothing: wrong options are refused here, not after a prompt was read.
        check(library().strata_sample(byref(options), (c_float * 1)(), 1, byref(c_uint64()),
                                      byref(c_int32())))

    def choose(self, logits: "array[float]", before: Sequence[int] = ()) -> int:
        """The next token. `before`: the tokens so far, for the repetition penalty."""
        values = array("f", logits)
        recent = array("i", before[-self._recent:] if self._recent else ())
        chosen = c_int32()
        if recent:
            self._options.recent_tokens = (c_int32 * len(recent)).from_buffer(recent)
        self._options.recent_count = len(recent)
        try:
            check(library().strata_sample(byref(self._options), values.buffer_info()[0],
                                          len(values), byref(self._state), byref(chosen)))
        finally:
            self._options.recent_tokens = None
            self._options.recent_count = 0
        return chosen.value
