# SPDX-License-Identifier: MIT
"""Plans: every byte known before one is allocated. No device is needed to make one."""
from __future__ import annotations

import os
from ctypes import byref, c_void_p
from typing import TYPE_CHECKING, Any, Mapping, NamedTuple, Optional, TypedDict

from . import _structs as s
from . import constants as c
from ._native import PathLike, check, library, sized
from ._owner import Owner
from .pack import Pack

if TYPE_CHECKING:
    from typing_extensions import Unpack

_KV = {"f16": c.KV_F16, "q8_0": c.KV_Q8_0, "f32": c.KV_F32}
_EXPERTS = {"auto": c.EXPERTS_AUTO, "stream": c.EXPERTS_STREAM, "resident": c.EXPERTS_RESIDENT}


class PlanOptions(TypedDict, total=False):
    """What a plan is made for; everything may be left out."""

    budget: int
    """Bytes of device memory to stay within; 0: all of it."""
    host_budget: int
    """Bytes of page-locked host memory to stay within; 0: no limit."""
    context: int
    """Longest sequence in tokens; 0: the library's default."""
    prompt: int
    """Prompt length to plan for; 0: the context."""
    chunk: int
    """Tokens that pass all layers together; 0: chosen."""
    decode_rows: int
    """Most rows of a step of decoding; 0: the library's default."""
    sequences: int
    """Sequences that the KV cache holds."""
    kv_tokens: int
    """Tokens that they hold together, shared ones counted once; 0: the context for each."""
    path: str
    """How experts are multiplied: "auto", "fp16", "fused,8:fp16"."""
    kv: str
    """"f16", "q8_0" or "f32"."""
    experts: str
    """"auto", "stream" or "resident"."""
    costs: str
    """What paths cost on the device: text of measure_costs()."""
    facts: Mapping[str, float]
    """About a device that is not here: fields of strata_device_facts by name."""


class PlanInfo(NamedTuple):
    """A plan as a whole; `kv` as PlanOptions have it."""

    layer_count: int
    band_count: int
    persistent_count: int
    configuration_count: int
    chunk_count: int
    chunk_tokens: int
    sequence_count: int
    context_tokens: int
    prompt_tokens: int
    device_budget_bytes: int
    device_bytes: int
    session_bytes: int
    prefill_bytes: int
    host_bytes: int
    arena_bytes: int
    ring_bytes: int
    expert_cache_bytes: int
    predicted_prompt_ns: int
    predicted_link_ns: int
    predicted_compute_ns: int
    predicted_copied_bytes: int
    decode_rows: int
    decode_host_bytes: int
    kv_tokens: int
    kv: str
    page_tokens: int
    alignment_bytes: int
    pinned_expert_bytes: int
    staged_expert_bytes: int
    loan_offset_bytes: int
    loan_bytes: int
    dense_tile_rows: int
    attention_tile_rows: int
    expert_tile_rows: int
    logit_tile_rows: int
    decode_persistent_count: int
    decode_configuration_count: int
    decode_arena_bytes: int


class PlanLayer(NamedTuple):
    """One layer in one band: its path, and why."""

    path: str
    reason: str
    resident_count: int
    configuration: int
    group_expert_count: int
    slot_bytes: int


class Shortfall(NamedTuple):
    """What would fit when a plan is infeasible; 0: nothing of the kind does."""

    feasible: bool
    needed_bytes: int
    missing_bytes: int
    context_tokens: int
    chunk_tokens: int


class Plan(Owner):
    """A frozen plan for a pack. Immutable; any thread may use it."""

    _name = "plan"

    def __init__(self, pack: Pack, **options: Unpack[PlanOptions]) -> None:
        made = c_void_p()
        check(library().strata_plan_create(pack.handle, byref(native_options(options)),
                                           byref(made)))
        self._handle = made

    @classmethod
    def load(cls, pack: Pack, path: PathLike) -> "Plan":
        """Reads a plan that was saved for the same pack."""
        plan = cls.__new__(cls)
        made = c_void_p()
        check(library().strata_plan_load_path(pack.handle, os.fsencode(path), byref(made)))
        plan._handle = made
        return plan

    @staticmethod
    def shortfall(pack: Pack, **options: Unpack[PlanOptions]) -> Shortfall:
        """How far options are from a feasible plan."""
        raw = sized(s.strata_plan_shortfall)
        check(library().strata_plan_shortfall_get(pack.handle, byref(native_options(options)),
                                                  byref(raw)))
        return Shortfall(bool(raw.feasible), raw.needed_bytes, raw.missing_bytes,
                         raw.context_tokens, raw.chunk_tokens)

    def save(self, path: PathLike) -> None:
        """Writes the plan to a file for a later run."""
        check(library().strata_plan_save_path(self.handle, os.fsencode(path)))

    def close(self) -> None:
        """Drops the plan; sessions made from it keep it alive."""
        if self._handle is not None:
            library().strata_plan_destroy(self._handle)
            self._handle = None

    @property
    def info(self) -> PlanInfo:
        """The plan as a whole."""
        raw = sized(s.strata_plan_info)
        check(library().strata_plan_info_get(self.handle, byref(raw)))
        numbers: dict[str, Any] = {field: getattr(raw, field) for field in PlanInfo._fields
                                   if field != "kv"}
        return PlanInfo(kv=kv_name(raw.kv_format), **numbers)

    def layers(self, band: int = -1) -> list[PlanLayer]:
        """Every layer in a band; the last band is the chunk."""
        info = self.info
        index = band if band >= 0 else info.band_count + band
        found = []
        for layer in range(info.layer_count):
            raw = sized(s.strata_plan_layer)
            check(library().strata_plan_layer_get(self.handle, layer, index, byref(raw)))
            found.append(PlanLayer(raw.path_name.decode(), raw.reason.decode(),
                                   *(getattr(raw, field) for field in PlanLayer._fields[2:])))
        return found


def choice(what: str, name: str, names: dict[str, int]) -> int:
    """The number that a name stands for."""
    if name not in names:
        raise ValueError(f"{what} is {name!r}; it must be one of {', '.join(names)}")
    return names[name]


def kv_name(number: int) -> str:
    """The name of a STRATA_KV_* constant."""
    return next((name for name, value in _KV.items() if value == number), str(number))


def native_options(options: PlanOptions) -> Any:
    """Options as the library takes them."""
    unknown = set(options) - set(PlanOptions.__annotations__)
    if unknown:
        raise TypeError("unknown options: " + ", ".join(sorted(unknown)))
    plan = sized(s.strata_plan_options)
    plan.kv_format = choice("kv", options.get("kv", "f16"), _KV)
    plan.experts = choice("experts", options.get("experts", "auto"), _EXPERTS)
    plan.sequence_count = options.get("sequences", 1)
    plan.device_budget_bytes = options.get("budget", 0)
    plan.kv_tokens = options.get("kv_tokens", 0)
    plan.host_budget_bytes = options.get("host_budget", 0)
    plan.context_tokens = options.get("context", 0)
    plan.prompt_tokens = options.get("prompt", 0)
    plan.chunk_tokens = options.get("chunk", 0)
    plan.path = options.get("path", "auto").encode()
    plan.decode_rows = options.get("decode_rows", 0)
    if "costs" in options:
        plan.costs = options["costs"].encode()
    if "facts" in options:
        facts = sized(s.strata_device_facts)
        known = {field[0] for field in s.strata_device_facts._fields_} - {"struct_size"}
        unknown = set(options["facts"]) - known
        if unknown:
            raise TypeError("unknown facts: " + ", ".join(sorted(unknown)))
        for name, value in options["facts"].items():
            setattr(facts, name, value)
        plan.device.contents = facts
    return plan
