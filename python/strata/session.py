# SPDX-License-Identifier: MIT
"""A pack on a device: prompts are read here."""
from __future__ import annotations

import math
import threading
from array import array
from contextlib import contextmanager
from ctypes import byref, c_float, c_int32, c_uint64, c_void_p
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Iterator, NamedTuple, Optional, Sequence, Type

from . import _structs as s
from . import constants as c
from ._native import check, library, sized
from .pack import Pack
from .plan import Plan, PlanOptions, choice, native_options

if TYPE_CHECKING:
    import numpy
    from typing_extensions import Unpack

_LOGITS = {"last": c.LOGITS_LAST, "all": c.LOGITS_ALL, "none": c.LOGITS_NONE}


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


ProgressFunction = Callable[[Progress], Optional[bool]]


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
        import numpy
        return numpy.frombuffer(self.logits, dtype=numpy.float32).reshape(
            self.positions, self.vocabulary_count)

    def top(self, count: int = 5) -> list[tuple[int, float]]:
        """The likeliest next tokens after the last position, with their probabilities."""
        if not self.logits:
            return []
        row = self.logits[-self.vocabulary_count:]
        order = sorted(range(len(row)), key=lambda token: (-row[token], token))[:count]
        largest = max(row)
        total = math.fsum(math.exp(value - largest) for value in row)
        return [(token, math.exp(row[token] - largest) / total) for token in order]


class _Trampoline:
    """Hands progress to Python and keeps what it raises until the call has returned."""

    def __init__(self, function: Optional[ProgressFunction]) -> None:
        self.function = function
        self.raised: Optional[BaseException] = None

    def __call__(self, _user_data: Any, pointer: Any) -> int:
        try:
            if self.function is None:
                return 0
            raw = pointer.contents
            stop = self.function(Progress(raw.done_tokens, raw.total_tokens, raw.chunk_tokens,
                                          raw.layer, raw.layer_count))
            return 1 if stop else 0
        except BaseException as error:  # an interrupt too: it is raised again after the call
            self.raised = error
            return 1


class Session:
    """
    A pack on a device with its KV cache. One thread at a time, but for cancel().

    device      "cpu" or "cuda:0"
    plan        made or loaded before; else one is made from the options of PlanOptions
    threads     of the CPU device; 0: one per core
    blas        False: plain loops, whose bits do not depend on chunks
    """

    def __init__(self, pack: Pack, *, device: str = "cpu", plan: Optional[Plan] = None,
                 threads: int = 0, blas: bool = True, **plan_options: Unpack[PlanOptions]) -> None:
        self._handle: Optional[c_void_p] = None
        self._prefill: Optional[c_void_p] = None
        self._lock = threading.Lock()
        self._calls = 0
        if plan is not None and plan_options:
            raise ValueError("a plan is given: " + ", ".join(plan_options) + " say nothing to it")
        options = sized(s.strata_session_options)
        options.thread_count = threads
        options.device = device.encode()
        if plan is not None:
            options.plan = plan.handle
        else:
            options.plan_options.contents = native_options(plan_options)
        options.blas = 0 if blas else 1
        made = c_void_p()
        check(library().strata_session_create(pack.handle, byref(options), byref(made)))
        self._handle = made
        self._vocabulary: int = library().strata_session_logits_count(made)

    @contextmanager
    def _call(self) -> Iterator[None]:
        """While a prompt is read, in whatever thread, the session cannot be closed."""
        with self._lock:
            self._calls += 1
        try:
            yield
        finally:
            with self._lock:
                self._calls -= 1

    def close(self) -> None:
        """Ends the session and frees what it owns. Not while a prompt is read."""
        with self._lock:
            if self._calls:
                raise RuntimeError("a prompt is being read: the session cannot be closed")
            self._free()

    def _free(self) -> None:
        if self._prefill is not None:
            library().strata_prefill_destroy(self._prefill)
            self._prefill = None
        if self._handle is not None:
            library().strata_session_destroy(self._handle)
            self._handle = None

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.close()

    @property
    def handle(self) -> c_void_p:
        """The strata_session pointer."""
        if self._handle is None:
            raise ValueError("the session is closed")
        return self._handle

    @property
    def vocabulary_count(self) -> int:
        """Values of one position's logits."""
        return self._vocabulary

    @property
    def stats(self) -> SessionStats:
        """What the session has done since it was created."""
        raw = sized(s.strata_session_stats)
        check(library().strata_session_stats_get(self.handle, byref(raw)))
        return SessionStats(*(getattr(raw, field) for field in SessionStats._fields))

    def length(self, sequence: int = 0) -> int:
        """Tokens that a sequence holds."""
        tokens = c_uint64()
        check(library().strata_session_length(self.handle, sequence, byref(tokens)))
        return tokens.value

    def truncate(self, length: int, sequence: int = 0) -> int:
        """Cuts a sequence to at most `length` tokens; returns the length reached."""
        reached = c_uint64()
        check(library().strata_session_truncate(self.handle, sequence, length, byref(reached)))
        return reached.value

    def cancel(self) -> None:
        """Stops the call that runs in another thread, which raises Cancelled."""
        library().strata_session_cancel(self.handle)

    def prefill(self, tokens: Sequence[int], *, logits: str = "last", sequence: int = 0,
                progress: Optional[ProgressFunction] = None) -> PrefillResult:
        """
        Reads a prompt: appends its tokens to a sequence and returns the logits asked for ("last",
        "all" or "none"). `progress` is called once a layer; a true answer stops the prompt, which
        raises Cancelled, and so does an exception, which comes out of this call.
        """
        values = array("i", list(tokens))  # refuses what 32 bits do not hold
        ids = (c_int32 * len(values)).from_buffer(values)
        mode = choice("logits", logits, _LOGITS)
        rows = {c.LOGITS_LAST: 1, c.LOGITS_ALL: len(values), c.LOGITS_NONE: 0}[mode]
        out = array("f", bytes(4 * rows * self._vocabulary))
        trampoline = _Trampoline(progress)
        request = sized(s.strata_prefill_request)
        request.sequence_id = sequence
        request.tokens = ids
        request.token_count = len(values)
        if rows:
            request.logits = (c_float * len(out)).from_buffer(out)
        request.logits_capacity = len(out)
        request.logits_mode = mode
        request.progress_fn = s.progress_fn(trampoline)
        result = sized(s.strata_prefill_result)
        with self._call():
            status = library().strata_prefill_run(self._ready(), byref(request), byref(result))
        if trampoline.raised is not None:
            raise trampoline.raised
        check(status)
        request.logits = None  # lets go of the array's buffer
        return PrefillResult(out, self._vocabulary, result.read_tokens, result.sequence_tokens,
                             result.chunk_count, result.wall_ns)

    def _ready(self) -> c_void_p:
        if self._prefill is None:
            made = c_void_p()
            check(library().strata_prefill_create(self.handle, None, byref(made)))
            self._prefill = made
        return self._prefill
