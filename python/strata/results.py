# SPDX-License-Identifier: MIT
"""What sessions answer: progress, statistics, logits."""
from __future__ import annotations

import math
from array import array
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy


class Progress(NamedTuple):
    """How far a prompt is."""

    done_tokens: int
    total_tokens: int
    chunk_tokens: int
    layer: int
    layer_count: int

    @property
    def share(self) -> float:
        """From 0 to 1."""
        present = self.chunk_tokens * self.layer / max(self.layer_count, 1)
        return min(1.0, (self.done_tokens + present) / max(self.total_tokens, 1))


class SessionStats(NamedTuple):
    """What a session has done."""

    prompt_tokens: int
    prompt_chunks: int
    prompt_ns: int
    expert_rows: int
    expert_launches: int
    device_bytes: int
    host_bytes: int
    device_runtime_bytes: int
    kernel_ns: int
    blob_wait_ns: int
    host_gap_ns: int
    blob_sent_bytes: int
    blob_hit_bytes: int
    blob_dropped_bytes: int
    blob_vain_bytes: int
    blob_filled_bytes: int
    refill_bytes: int
    link_bytes: int
    link_ns: int
    lock_wanted_bytes: int
    lock_bytes: int
    lock_refused_bytes: int
    blob_slow_bytes: int
    decode_tokens: int
    decode_steps: int
    decode_ns: int
    decode_hit_bytes: int
    decode_place_bytes: int
    decode_fetch_bytes: int
    decode_admit_bytes: int


class StateInfo(NamedTuple):
    """What a saved sequence says of itself; `kv` as PlanOptions have it."""

    tokens: int
    kv: str
    total_bytes: int
    page_tokens: int
    layer_count: int


def _numpy(logits: "array[float]", vocabulary: int) -> "numpy.ndarray[Any, Any]":
    import numpy
    return numpy.frombuffer(logits, dtype=numpy.float32).reshape(-1, vocabulary)


def _top(logits: "array[float]", vocabulary: int, count: int) -> list[tuple[int, float]]:
    if not logits:
        return []
    row = logits[-vocabulary:]
    order = sorted(range(len(row)), key=lambda token: (-row[token], token))[:count]
    largest = max(row)
    total = math.fsum(math.exp(value - largest) for value in row)
    return [(token, math.exp(row[token] - largest) / total) for token in order]


class PrefillResult(NamedTuple):
    """Outcome of a prompt. `logits` holds `vocabulary_count` values for each position."""

    logits: "array[float]"
    vocabulary_count: int
    read_tokens: int
    sequence_tokens: int
    chunk_count: int
    wall_ns: int

    @property
    def positions(self) -> int:
        """Rows of `logits`."""
        return len(self.logits) // self.vocabulary_count

    def numpy(self) -> "numpy.ndarray[Any, Any]":
        """The logits as a numpy array [positions, vocabulary] on the same memory."""
        return _numpy(self.logits, self.vocabulary_count)

    def top(self, count: int = 5) -> list[tuple[int, float]]:
        """The likeliest next tokens after the last position, with their probabilities."""
        return _top(self.logits, self.vocabulary_count, count)


class DecodeResult(NamedTuple):
    """Outcome of a step. `logits` holds `vocabulary_count` values for each row asked for."""

    logits: "array[float]"
    vocabulary_count: int
    row_count: int
    sequence_tokens: tuple[int, ...]
    wall_ns: int

    @property
    def positions(self) -> int:
        """Rows of `logits`."""
        return len(self.logits) // self.vocabulary_count

    def numpy(self) -> "numpy.ndarray[Any, Any]":
        """The logits as a numpy array [positions, vocabulary] on the same memory."""
        return _numpy(self.logits, self.vocabulary_count)

    def top(self, count: int = 5) -> list[tuple[int, float]]:
        """The likeliest next tokens after the last row, with their probabilities."""
        return _top(self.logits, self.vocabulary_count, count)
