# SPDX-License-Identifier: MIT
"""A pack on a device: prompts are read and continued here."""
from __future__ import annotations

import ctypes
import os
import threading
from array import array
from contextlib import contextmanager
from ctypes import byref, c_float, c_int32, c_uint64, c_void_p
from typing import (TYPE_CHECKING, Any, Callable, Iterator, Mapping, Optional, Sequence, Union)

from . import _structs as s
from . import constants as c
from ._buffers import Memory
from ._native import PathLike, check, library, sized
from ._owner import Owner
from .experts import ExpertFunction, ExpertSource
from .generation import Generation, Tokens, end_tokens
from .pack import Pack
from .plan import Plan, PlanOptions, choice, kv_name, native_options
from .results import DecodeResult, PrefillResult, Progress, SessionStats, StateInfo
from .sampling import Sampler, SamplingOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack

_LOGITS = {"last": c.LOGITS_LAST, "all": c.LOGITS_ALL, "none": c.LOGITS_NONE}
_ALL = 2 ** 64 - 1

ProgressFunction = Callable[[Progress], Optional[bool]]


def state_info(saved: Any) -> StateInfo:
    """What the bytes of a saved sequence, or a file of that path (str or PathLike), need."""
    raw = sized(s.strata_state_info)
    if isinstance(saved, (str, os.PathLike)):
        check(library().strata_state_info_path(os.fsencode(saved), byref(raw)))
    else:
        memory = Memory(saved)
        check(library().strata_state_info_memory(memory.address, memory.count, byref(raw)))
    return StateInfo(raw.tokens, kv_name(raw.kv_format), raw.total_bytes, raw.page_tokens,
                     raw.layer_count)


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


ScoreFunction = Callable[[int, int, int, float], float]
"""Scores an expert from its layer, its number, all its uses and those that decayed."""


class _Scores:
    """Asks Python for scores and keeps what it raises until the step is over."""

    def __init__(self, function: ScoreFunction) -> None:
        self.function = function
        self.raised: Optional[BaseException] = None
        self.native = s.cache_score_fn(self)

    def __call__(self, _user_data: Any, layer: int, expert: int, uses: int,
                 decayed: float) -> float:
        try:
            return float(self.function(layer, expert, uses, decayed))
        except BaseException as error:  # an interrupt too: it is raised again after the step
            self.raised = error
            return 0.0


class Session(Owner):
    """
    A pack on a device with its KV cache. One thread at a time, but for cancel().

    device      "cpu" or "cuda:0"
    plan        made or loaded before; else one is made from the options of PlanOptions
    threads     of the CPU device; 0: one per core
    blas        False: plain loops, whose bits do not depend on chunks or steps
    profile     bytes of Session.profile() of an earlier session: which experts to keep first
    experts_from  function of layer and expert that gives the bytes of gate, up and down, as bytes or
                anything with memory, which is kept until it is asked again; else the pack's
    """

    _name = "session"

    def __init__(self, pack: Pack, *, device: str = "cpu", plan: Optional[Plan] = None,
                 threads: int = 0, blas: bool = True, profile: Optional[bytes] = None,
                 experts_from: Optional[ExpertFunction] = None,
                 **plan_options: Unpack[PlanOptions]) -> None:
        self._prefill: Optional[c_void_p] = None
        self._lock = threading.RLock()  # a signal's handler may call cancel() within
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
        if profile is not None:
            kept = Memory(profile)
            options.profile = kept.address
            options.profile_bytes = kept.count
        self._experts = ExpertSource(experts_from, pack) if experts_from is not None else None
        if self._experts is not None:
            options.expert_fn = ctypes.cast(self._experts.native, c_void_p)
        self._pack = pack
        self._ends: Optional[frozenset[int]] = None
        self._scores: Optional[_Scores] = None
        made = c_void_p()
        self._check(library().strata_session_create(pack.handle, byref(options), byref(made)))
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

    @property
    def vocabulary_count(self) -> int:
        """Values of one position's logits."""
        return self._vocabulary

    @property
    def context(self) -> int:
        """Tokens that a sequence may have."""
        plan = sized(s.strata_plan_info)
        check(library().strata_plan_info_get(library().strata_session_plan(self.handle),
                                             byref(plan)))
        return int(plan.context_tokens)

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

    def fork(self, to: int, *, sequence: int = 0, length: Optional[int] = None) -> int:
        """
        Gives the empty sequence `to` the first `length` tokens of another, or all, without a copy;
        returns the length reached.
        """
        reached = c_uint64()
        check(library().strata_session_share(self.handle, sequence, to,
                                             _ALL if length is None else length, byref(reached)))
        return reached.value

    def save(self, path: Optional[PathLike] = None, *, sequence: int = 0) -> bytes:
        """A sequence as bytes; with a path they go to that file instead, and b"" is returned."""
        with self._call():
            if path is not None:
                check(library().strata_session_save_path(self.handle, sequence, os.fsencode(path)))
                return b""
            count = c_uint64()
            check(library().strata_session_save_memory(self.handle, sequence, None, 0,
                                                       byref(count)))
            data = bytearray(count.value)
            place = (ctypes.c_char * len(data)).from_buffer(data)
            check(library().strata_session_save_memory(self.handle, sequence,
                                                       ctypes.addressof(place), len(data),
                                                       byref(count)))
            return bytes(data)

    def restore(self, saved: Any, *, sequence: int = 0) -> int:
        """
        Reads a saved sequence into an empty one: from bytes, or anything with memory. Returns its
        length.
        """
        memory = Memory(saved)
        with self._call():
            check(library().strata_session_restore_memory(self.handle, sequence, memory.address,
                                                          memory.count))
        return self.length(sequence)

    def restore_file(self, path: PathLike, *, sequence: int = 0) -> int:
        """As restore(), from a file of save()."""
        with self._call():
            check(library().strata_session_restore_path(self.handle, sequence, os.fsencode(path)))
        return self.length(sequence)

    def profile(self) -> bytes:
        """How often each expert was used, for the `profile` of a later session of the pack."""
        count = c_uint64()
        check(library().strata_session_profile(self.handle, None, 0, byref(count)))
        data = ctypes.create_string_buffer(count.value)
        check(library().strata_session_profile(self.handle, data, count.value, byref(count)))
        return data.raw

    def expert_uses(self, layer: int) -> list[int]:
        """Rows that each expert of a layer has multiplied, those of the profile included."""
        count = self._pack.info.expert_count
        uses = (c_uint64 * max(count, 1))()
        check(library().strata_session_expert_uses(self.handle, layer, uses, count))
        return list(uses[:count])

    def drop_experts(self) -> None:
        """Forgets the experts on the device, which the next prompt sends again."""
        check(library().strata_session_drop_experts(self.handle))

    def set_budget(self, count: int) -> None:
        """Sets the bytes of device memory that the session may have; 0: what was planned."""
        check(library().strata_session_set_budget(self.handle, count))

    def set_cache_policy(self, *, frozen: bool = False, half_life: float = 0, margin: float = 0,
                         margin_uses: float = 0, admit_bytes: int = 0,
                         score: Optional[ScoreFunction] = None) -> None:
        """
        How decoding changes what the expert cache holds; zeros are the library's defaults.

        frozen       it does not
        half_life    rows after which a use counts half
        margin       an expert comes in whose score is above (1 + margin) * least + margin_uses
        margin_uses  the same, in uses
        admit_bytes  of experts that come in between two steps
        score        in place of the decayed uses
        """
        policy = sized(s.strata_cache_policy)
        policy.frozen = int(frozen)
        policy.half_life_tokens = half_life
        policy.margin = margin
        policy.margin_uses = margin_uses
        policy.admit_bytes = admit_bytes
        scores = _Scores(score) if score is not None else None
        if scores is not None:
            policy.score_fn = scores.native
        check(library().strata_session_set_cache_policy(self.handle, byref(policy)))
        self._scores = scores

    def cancel(self) -> None:
        """Stops the call that runs in another thread, which raises Cancelled."""
        with self._lock:  # nobody closes it meanwhile
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
        self._check(status)
        request.logits = None  # lets go of the array's buffer
        return PrefillResult(out, self._vocabulary, result.read_tokens, result.sequence_tokens,
                             result.chunk_count, result.wall_ns)

    def decode(self, tokens: Sequence[int], *, sequence: int = 0,
               logits: str = "last") -> DecodeResult:
        """
        Appends a few tokens to a sequence and returns the logits asked for: what follows each of
        them ("all"), or the last one. `decode_rows` of the plan's options limits their number.
        """
        return self.decode_step({sequence: tokens}, logits=logits)

    def decode_step(self, parts: Mapping[int, Sequence[int]], *,
                    logits: str = "last") -> DecodeResult:
        """
        One step for several sequences: tokens by sequence. "last" logits are one row a sequence,
        "all" one a token, in the order of `parts`.
        """
        values = [array("i", list(tokens)) for tokens in parts.values()]
        native = (s.strata_decode_part * max(len(values), 1))()
        for part, sequence, ids in zip(native, parts, values):
            part.sequence_id = sequence
            part.token_count = len(ids)
            part.tokens = (c_int32 * len(ids)).from_buffer(ids)
        mode = choice("logits", logits, _LOGITS)
        rows = {c.LOGITS_LAST: len(values), c.LOGITS_ALL: sum(map(len, values)),
                c.LOGITS_NONE: 0}[mode]
        out = array("f", bytes(4 * rows * self._vocabulary))
        request = sized(s.strata_decode_request)
        request.part_count = len(values)
        request.parts = native
        if rows:
            request.logits = (c_float * len(out)).from_buffer(out)
        request.logits_capacity = len(out)
        request.logits_mode = mode
        result = sized(s.strata_decode_result)
        with self._call():
            status = library().strata_session_decode(self.handle, byref(request), byref(result))
        if self._scores is not None and self._scores.raised is not None:
            raised, self._scores.raised = self._scores.raised, None
            raise raised
        self._check(status)
        request.logits = None  # lets go of the array's buffer
        return DecodeResult(out, self._vocabulary, result.row_count,
                            tuple(result.sequence_tokens[:len(values)]), result.wall_ns)

    def generate(self, prompt: Union[str, bytes, Sequence[int]], max_tokens: int = 128, *,
                 stop: Union[str, Sequence[str]] = (), sequence: int = 0, special: bool = False,
                 ignore_end: bool = False, progress: Optional[ProgressFunction] = None,
                 **sampling: Unpack[SamplingOptions]) -> Generation:
        """
        Goes on from a prompt: an iterator of pieces of text, which keeps text and tokens.

        prompt      text, or tokens; appended to the sequence
        max_tokens  at most as many are generated
        stop        text, or texts, before which it ends
        special     texts of control tokens in the prompt are these tokens
        ignore_end  goes on after the model has ended its text
        progress    of reading the prompt, as in prefill()
        sampling    see SamplingOptions
        """
        ids: Sequence[int]
        if isinstance(prompt, (str, bytes)):
            ids = self._pack.encode(prompt, special=special, bare=self.length(sequence) > 0)
        else:
            ids = prompt
        tokens = self.generate_tokens(ids, max_tokens, sequence=sequence, ignore_end=ignore_end,
                                      progress=progress, **sampling)
        return Generation(tokens, self._pack, stop)

    def generate_tokens(self, prompt: Sequence[int], max_tokens: int = 128, *, sequence: int = 0,
                        ignore_end: bool = False, progress: Optional[ProgressFunction] = None,
                        **sampling: Unpack[SamplingOptions]) -> Tokens:
        """As generate(), in tokens; the pack needs no vocabulary."""
        if self._ends is None:
            self._ends = end_tokens(self._pack)
        return Tokens(self, prompt, max_tokens=max_tokens, sampler=Sampler(**sampling),
                      ends=frozenset() if ignore_end else self._ends, sequence=sequence,
                      progress=progress)

    def _check(self, status: int) -> None:
        if self._experts is not None:
            self._experts.raise_again(status)
        check(status)

    def _ready(self) -> c_void_p:
        if self._prefill is None:
            made = c_void_p()
            check(library().strata_prefill_create(self.handle, None, byref(made)))
            self._prefill = made
        return self._prefill
