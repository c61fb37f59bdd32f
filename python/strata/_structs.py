# SPDX-License-Identifier: MIT
"""The public structures, field by field as the C headers have them."""
from __future__ import annotations

import operator
from ctypes import (CFUNCTYPE, POINTER, Structure, c_char, c_char_p, c_double, c_float, c_int32,
                    c_uint32, c_uint64, c_void_p)
from typing import Any


class int32:
    """An argument of 32 bits with a sign. What does not fit is refused: ctypes would cut it."""

    kind: Any = c_int32
    lowest, highest = -2 ** 31, 2 ** 31 - 1

    @classmethod
    def from_param(cls, value: Any) -> Any:
        """The argument as ctypes passes it on."""
        number = operator.index(value)
        if not cls.lowest <= number <= cls.highest:
            raise OverflowError(f"{number} is not in {cls.lowest} to {cls.highest}")
        return cls.kind(number)


class uint32(int32):
    """An argument of 32 bits without a sign."""

    kind: Any = c_uint32
    lowest, highest = 0, 2 ** 32 - 1


class uint64(int32):
    """An argument of 64 bits without a sign."""

    kind: Any = c_uint64
    lowest, highest = 0, 2 ** 64 - 1


class text:
    """An argument that ends with a NUL: one within it is refused, where C would stop reading."""

    @classmethod
    def from_param(cls, value: bytes | None) -> Any:
        """The argument as ctypes passes it on."""
        if value is not None and b"\0" in value:
            raise ValueError("embedded null byte")
        return c_char_p(value)


_CHECKED: dict[Any, Any] = {c_int32: int32, c_uint32: uint32, c_uint64: uint64, c_char_p: text}


class _Record(Structure):
    """Fields take what fits them, as arguments do."""

    def __setattr__(self, name: str, value: Any) -> None:
        kinds: dict[str, Any] = {field[0]: field[1] for field in self._fields_}
        if name not in kinds:
            raise AttributeError(f"{type(self).__name__} has no field {name}")
        check = _CHECKED.get(kinds[name])
        if check is not None:
            try:
                value = check.from_param(value).value
            except (OverflowError, ValueError) as error:
                raise type(error)(f"{name}: {error}") from None
        super().__setattr__(name, value)


class strata_device_info(_Record):
    _fields_ = [
        ("struct_size", c_uint32),
        ("compute_capability", c_uint32),
        ("multiprocessor_count", c_uint32),
        ("reserved0", c_uint32),
        ("memory_total_bytes", c_uint64),
        ("memory_free_bytes", c_uint64),
        ("shared_memory_bytes", c_uint64),
        ("name", c_char * 64),
        ("uuid", c_char * 40),
    ]


class strata_pack_info(_Record):
    _fields_ = [
        ("struct_size", c_uint32),
        ("runnable", c_uint32),
        ("layer_count", c_uint32),
        ("width", c_uint32),
        ("vocabulary_count", c_uint32),
        ("context_tokens", c_uint32),
        ("expert_count", c_uint32),
        ("experts_per_token", c_uint32),
        ("file_bytes", c_uint64),
        ("expert_bytes", c_uint64),
        ("dense_bytes", c_uint64),
        ("tensor_count", c_uint64),
        ("metadata_count", c_uint64),
        ("token_count", c_uint64),
        ("architecture", c_char * 64),
        ("name", c_char * 128),
        ("runnable_reason", c_char * 256),
    ]


class strata_tokenizer_info(_Record):
    _fields_ = [
        ("struct_size", c_uint32),
        ("token_count", c_uint32),
        ("bos_token", c_int32),
        ("eos_token", c_int32),
        ("unknown_token", c_int32),
        ("add_bos", c_uint32),
        ("add_eos", c_uint32),
        ("add_space", c_uint32),
        ("model", c_char * 32),
        ("pre", c_char * 32),
    ]


class strata_encode_options(_Record):
    _fields_ = [
        ("struct_size", c_uint32),
        ("special", c_uint32),
        ("bare", c_uint32),
        ("invalid_utf8", c_uint32),
    ]


class strata_decode_options(_Record):
    _fields_ = [
        ("struct_size", c_uint32),
        ("special", c_uint32),
        ("continued", c_uint32),
        ("reserved0", c_uint32),
    ]


class strata_sample_options(_Record):
    _fields_ = [
        ("struct_size", c_uint32),
        ("top_k", c_uint32),
        ("temperature", c_float),
        ("top_p", c_float),
        ("min_p", c_float),
        ("repetition_penalty", c_float),
        ("recent_tokens", POINTER(c_int32)),
        ("recent_count", c_uint64),
    ]


class strata_layer_info(_Record):
    _fields_ = [
        ("struct_size", c_uint32),
        ("heads", c_uint32),
        ("kv_heads", c_uint32),
        ("head_size", c_uint32),
        ("window_tokens", c_uint32),
        ("expert_count", c_uint32),
        ("expert_width", c_uint32),
        ("ffn_width", c_uint32),
        ("shared_width", c_uint32),
        ("gate_format", c_uint32),
        ("up_format", c_uint32),
        ("down_format", c_uint32),
        ("gate_blob_bytes", c_uint64),
        ("up_blob_bytes", c_uint64),
        ("down_blob_bytes", c_uint64),
        ("dense_bytes", c_uint64),
    ]


class strata_tensor_info(_Record):
    _fields_ = [
        ("struct_size", c_uint32),
        ("format", c_uint32),
        ("dimension_count", c_uint32),
        ("shard", c_uint32),
        ("shape", c_uint64 * 4),
        ("bytes", c_uint64),
        ("data", c_void_p),
        ("name", c_char_p),
        ("format_name", c_char_p),
    ]


class strata_metadata_info(_Record):
    _fields_ = [
        ("struct_size", c_uint32),
        ("type", c_uint32),
        ("element_type", c_uint32),
        ("reserved0", c_uint32),
        ("count", c_uint64),
        ("key", c_char_p),
    ]


class strata_token_info(_Record):
    _fields_ = [
        ("struct_size", c_uint32),
        ("type", c_uint32),
        ("score", c_float),
        ("reserved0", c_uint32),
        ("byte_count", c_uint64),
        ("bytes", c_void_p),
    ]


class strata_device_facts(_Record):
    _fields_ = [
        ("struct_size", c_uint32),
        ("compute_capability", c_uint32),
        ("memory_bytes", c_uint64),
        ("shared_memory_bytes", c_uint64),
        ("alignment_bytes", c_uint64),
        ("link_bytes_per_second", c_double),
        ("link_latency_seconds", c_double),
        ("memory_bytes_per_second", c_double),
        ("dense_flops", c_double),
        ("attention_flops", c_double),
        ("path_flops", c_double * 4),
    ]


class strata_plan_options(_Record):
    _fields_ = [
        ("struct_size", c_uint32),
        ("kv_format", c_uint32),
        ("experts", c_uint32),
        ("sequence_count", c_uint32),
        ("device_budget_bytes", c_uint64),
        ("host_budget_bytes", c_uint64),
        ("context_tokens", c_uint64),
        ("prompt_tokens", c_uint64),
        ("chunk_tokens", c_uint64),
        ("path", c_char_p),
        ("device", POINTER(strata_device_facts)),
        ("lend_cache", c_uint32),
        ("reserved0", c_uint32),
        ("decode_rows", c_uint32),
        ("reserved1", c_uint32),
        ("kv_tokens", c_uint64),
        ("costs", c_char_p),
    ]


class strata_plan_info(_Record):
    _fields_ = [
        ("struct_size", c_uint32),
        ("layer_count", c_uint32),
        ("band_count", c_uint32),
        ("persistent_count", c_uint32),
        ("configuration_count", c_uint32),
        ("chunk_count", c_uint32),
        ("chunk_tokens", c_uint32),
        ("dense_tile_rows", c_uint32),
        ("attention_tile_rows", c_uint32),
        ("expert_tile_rows", c_uint32),
        ("logit_tile_rows", c_uint32),
        ("sequence_count", c_uint32),
        ("page_tokens", c_uint32),
        ("kv_format", c_uint32),
        ("context_tokens", c_uint64),
        ("prompt_tokens", c_uint64),
        ("device_budget_bytes", c_uint64),
        ("device_bytes", c_uint64),
        ("session_bytes", c_uint64),
        ("prefill_bytes", c_uint64),
        ("host_bytes", c_uint64),
        ("pinned_expert_bytes", c_uint64),
        ("staged_expert_bytes", c_uint64),
        ("alignment_bytes", c_uint64),
        ("arena_bytes", c_uint64),
        ("ring_bytes", c_uint64),
        ("expert_cache_bytes", c_uint64),
        ("loan_offset_bytes", c_uint64),
        ("loan_bytes", c_uint64),
        ("predicted_prompt_ns", c_uint64),
        ("predicted_link_ns", c_uint64),
        ("predicted_compute_ns", c_uint64),
        ("predicted_copied_bytes", c_uint64),
        ("decode_rows", c_uint32),
        ("decode_configuration_count", c_uint32),
        ("decode_persistent_count", c_uint32),
        ("reserved0", c_uint32),
        ("decode_arena_bytes", c_uint64),
        ("decode_host_bytes", c_uint64),
        ("kv_tokens", c_uint64),
    ]


class strata_plan_layer(_Record):
    _fields_ = [
        ("struct_size", c_uint32),
        ("path", c_uint32),
        ("configuration", c_uint32),
        ("resident_count", c_uint32),
        ("group_expert_count", c_uint32),
        ("reserved0", c_uint32),
        ("slot_bytes", c_uint64),
        ("path_name", c_char_p),
        ("reason", c_char_p),
    ]


class strata_plan_shortfall(_Record):
    _fields_ = [
        ("struct_size", c_uint32),
        ("feasible", c_uint32),
        ("needed_bytes", c_uint64),
        ("missing_bytes", c_uint64),
        ("context_tokens", c_uint64),
        ("chunk_tokens", c_uint64),
    ]


class strata_expert_blob(_Record):
    _fields_ = [
        ("gate", c_void_p),
        ("up", c_void_p),
        ("down", c_void_p),
    ]


expert_fn = CFUNCTYPE(c_int32, c_void_p, c_uint32, c_uint32, POINTER(strata_expert_blob))


class strata_session_options(_Record):
    _fields_ = [
        ("struct_size", c_uint32),
        ("thread_count", c_uint32),
        ("device", c_char_p),
        ("plan", c_void_p),
        ("plan_options", POINTER(strata_plan_options)),
        ("device_memory", c_void_p),
        ("device_memory_bytes", c_uint64),
        ("stream", c_void_p),
        ("expert_fn", c_void_p),
        ("expert_user_data", c_void_p),
        ("blas", c_uint32),
        ("kernel_level", c_uint32),
        ("expert_memory", c_uint32),
        ("plain_launches", c_uint32),
        ("profile", c_void_p),
        ("profile_bytes", c_uint64),
    ]


class strata_progress(_Record):
    _fields_ = [
        ("struct_size", c_uint32),
        ("layer", c_uint32),
        ("layer_count", c_uint32),
        ("reserved0", c_uint32),
        ("done_tokens", c_uint64),
        ("chunk_tokens", c_uint64),
        ("total_tokens", c_uint64),
    ]


progress_fn = CFUNCTYPE(c_int32, c_void_p, POINTER(strata_progress))


class strata_prefill_request(_Record):
    _fields_ = [
        ("struct_size", c_uint32),
        ("sequence_id", c_int32),
        ("tokens", POINTER(c_int32)),
        ("token_count", c_uint64),
        ("logits", POINTER(c_float)),
        ("logits_capacity", c_uint64),
        ("logits_mode", c_uint32),
        ("reserved0", c_uint32),
        ("progress_fn", progress_fn),
        ("progress_user_data", c_void_p),
    ]


class strata_prefill_result(_Record):
    _fields_ = [
        ("struct_size", c_uint32),
        ("chunk_count", c_uint32),
        ("read_tokens", c_uint64),
        ("sequence_tokens", c_uint64),
        ("wall_ns", c_uint64),
    ]


class strata_decode_part(_Record):
    _fields_ = [
        ("sequence_id", c_int32),
        ("token_count", c_uint32),
        ("tokens", POINTER(c_int32)),
    ]


class strata_decode_request(_Record):
    _fields_ = [
        ("struct_size", c_uint32),
        ("part_count", c_uint32),
        ("parts", POINTER(strata_decode_part)),
        ("logits", POINTER(c_float)),
        ("logits_capacity", c_uint64),
        ("logits_mode", c_uint32),
        ("reserved0", c_uint32),
    ]


class strata_decode_result(_Record):
    _fields_ = [
        ("struct_size", c_uint32),
        ("row_count", c_uint32),
        ("logits_count", c_uint64),
        ("wall_ns", c_uint64),
        ("sequence_tokens", c_uint64 * 16),
    ]


cache_score_fn = CFUNCTYPE(c_double, c_void_p, c_uint32, c_uint32, c_uint64, c_double)


class strata_cache_policy(_Record):
    _fields_ = [
        ("struct_size", c_uint32),
        ("frozen", c_uint32),
        ("half_life_tokens", c_double),
        ("margin", c_double),
        ("margin_uses", c_double),
        ("admit_bytes", c_uint64),
        ("score_fn", cache_score_fn),
        ("user_data", c_void_p),
    ]


class strata_state_info(_Record):
    _fields_ = [
        ("struct_size", c_uint32),
        ("kv_format", c_uint32),
        ("tokens", c_uint64),
        ("total_bytes", c_uint64),
        ("page_tokens", c_uint32),
        ("layer_count", c_uint32),
    ]


class strata_session_stats(_Record):
    _fields_ = [
        ("struct_size", c_uint32),
        ("reserved0", c_uint32),
        ("prompt_tokens", c_uint64),
        ("prompt_chunks", c_uint64),
        ("prompt_ns", c_uint64),
        ("expert_rows", c_uint64),
        ("expert_launches", c_uint64),
        ("device_bytes", c_uint64),
        ("host_bytes", c_uint64),
        ("device_runtime_bytes", c_uint64),
        ("kernel_ns", c_uint64),
        ("blob_wait_ns", c_uint64),
        ("host_gap_ns", c_uint64),
        ("blob_sent_bytes", c_uint64),
        ("blob_hit_bytes", c_uint64),
        ("blob_dropped_bytes", c_uint64),
        ("blob_vain_bytes", c_uint64),
        ("blob_filled_bytes", c_uint64),
        ("refill_bytes", c_uint64),
        ("link_bytes", c_uint64),
        ("link_ns", c_uint64),
        ("lock_wanted_bytes", c_uint64),
        ("lock_bytes", c_uint64),
        ("lock_refused_bytes", c_uint64),
        ("blob_slow_bytes", c_uint64),
        ("decode_tokens", c_uint64),
        ("decode_steps", c_uint64),
        ("decode_ns", c_uint64),
        ("decode_hit_bytes", c_uint64),
        ("decode_place_bytes", c_uint64),
        ("decode_fetch_bytes", c_uint64),
        ("decode_admit_bytes", c_uint64),
    ]
