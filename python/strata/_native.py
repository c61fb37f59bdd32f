# SPDX-License-Identifier: MIT
"""Finds and loads the shared library, and turns status codes into exceptions."""
from __future__ import annotations

import ctypes
import ctypes.util
import os
import threading
from ctypes import (POINTER, byref, c_char_p, c_double, c_int32, c_int64, c_uint32, c_uint64,
                    c_void_p)
from typing import Optional, Sequence, Type, TypeVar, Union

from . import _structs as s
from . import constants
from .errors import Cancelled, StrataError

PathLike = Union[str, "os.PathLike[str]"]

_handle = c_void_p
_out_handle = POINTER(c_void_p)

# name: (result, arguments)
_PROTOTYPES: dict[str, tuple[object, list[object]]] = {
    "strata_status_name": (c_char_p, [s.int32]),
    "strata_last_error": (c_uint64, [c_char_p, s.uint64]),
    "strata_version_string": (c_char_p, []),
    "strata_build_info": (c_char_p, [s.uint32]),
    "strata_context_create": (c_int32, [c_void_p, _out_handle]),
    "strata_device_count": (c_int32, [_handle, POINTER(c_uint32)]),
    "strata_device_info_get": (c_int32, [_handle, s.uint32, POINTER(s.strata_device_info)]),
    "strata_costs_measure": (
        c_int32, [_handle, s.text, c_char_p, s.uint64, POINTER(c_uint64)]),
    "strata_pack_open_path": (c_int32, [_handle, s.text, _out_handle]),
    "strata_pack_open_memory": (c_int32, [_handle, c_void_p, s.uint64, _out_handle]),
    "strata_pack_close": (None, [_handle]),
    "strata_pack_info_get": (c_int32, [_handle, POINTER(s.strata_pack_info)]),
    "strata_pack_layer_get": (c_int32, [_handle, s.uint32, POINTER(s.strata_layer_info)]),
    "strata_pack_tensor_get": (c_int32, [_handle, s.uint64, POINTER(s.strata_tensor_info)]),
    "strata_pack_tensor_find": (c_int32, [_handle, s.text, POINTER(s.strata_tensor_info)]),
    "strata_pack_metadata_get": (c_int32, [_handle, s.uint64, POINTER(s.strata_metadata_info)]),
    "strata_pack_metadata_find": (c_int32, [_handle, s.text, POINTER(s.strata_metadata_info)]),
    "strata_pack_metadata_int64": (c_int32, [_handle, s.text, s.uint64, POINTER(c_int64)]),
    "strata_pack_metadata_float64": (c_int32, [_handle, s.text, s.uint64, POINTER(c_double)]),
    "strata_pack_metadata_string": (
        c_int32, [_handle, s.text, s.uint64, POINTER(c_void_p), POINTER(c_uint64)]),
    "strata_pack_token_get": (c_int32, [_handle, s.uint64, POINTER(s.strata_token_info)]),
    "strata_pack_token_text": (c_int32, [_handle, s.uint64, c_char_p, s.uint64,
                                         POINTER(c_uint64)]),
    "strata_tokenizer_create": (c_int32, [_handle, _out_handle]),
    "strata_tokenizer_destroy": (None, [_handle]),
    "strata_tokenizer_info_get": (c_int32, [_handle, POINTER(s.strata_tokenizer_info)]),
    "strata_tokenizer_encode": (
        c_int32, [_handle, c_char_p, s.uint64, POINTER(s.strata_encode_options), c_void_p, s.uint64,
                  POINTER(c_uint64)]),
    "strata_tokenizer_decode": (
        c_int32, [_handle, c_void_p, s.uint64, POINTER(s.strata_decode_options), c_char_p, s.uint64,
                  POINTER(c_uint64)]),
    "strata_sample": (c_int32, [POINTER(s.strata_sample_options), c_void_p, s.uint64,
                                POINTER(c_uint64), POINTER(c_int32)]),
    "strata_plan_options_init": (None, [POINTER(s.strata_plan_options), s.uint64]),
    "strata_plan_create": (c_int32, [_handle, POINTER(s.strata_plan_options), _out_handle]),
    "strata_plan_destroy": (None, [_handle]),
    "strata_plan_shortfall_get": (c_int32, [_handle, POINTER(s.strata_plan_options),
                                            POINTER(s.strata_plan_shortfall)]),
    "strata_plan_info_get": (c_int32, [_handle, POINTER(s.strata_plan_info)]),
    "strata_plan_layer_get": (c_int32, [_handle, s.uint32, s.uint32,
                                        POINTER(s.strata_plan_layer)]),
    "strata_plan_save_path": (c_int32, [_handle, s.text]),
    "strata_plan_load_path": (c_int32, [_handle, s.text, _out_handle]),
    "strata_session_options_init": (None, [POINTER(s.strata_session_options), s.uint64]),
    "strata_session_create": (c_int32, [_handle, POINTER(s.strata_session_options), _out_handle]),
    "strata_session_destroy": (None, [_handle]),
    "strata_session_cancel": (None, [_handle]),
    "strata_session_length": (c_int32, [_handle, s.int32, POINTER(c_uint64)]),
    "strata_session_truncate": (c_int32, [_handle, s.int32, s.uint64, POINTER(c_uint64)]),
    "strata_session_plan": (c_void_p, [_handle]),
    "strata_session_share": (c_int32, [_handle, s.int32, s.int32, s.uint64, POINTER(c_uint64)]),
    "strata_session_save_memory": (c_int32, [_handle, s.int32, c_void_p, s.uint64,
                                             POINTER(c_uint64)]),
    "strata_session_save_path": (c_int32, [_handle, s.int32, s.text]),
    "strata_state_info_memory": (c_int32, [c_void_p, s.uint64, POINTER(s.strata_state_info)]),
    "strata_state_info_path": (c_int32, [s.text, POINTER(s.strata_state_info)]),
    "strata_session_restore_memory": (c_int32, [_handle, s.int32, c_void_p, s.uint64]),
    "strata_session_restore_path": (c_int32, [_handle, s.int32, s.text]),
    "strata_session_logits_count": (c_uint64, [_handle]),
    "strata_session_drop_experts": (c_int32, [_handle]),
    "strata_session_expert_uses": (c_int32, [_handle, s.uint32, POINTER(c_uint64), s.uint64]),
    "strata_session_profile": (c_int32, [_handle, c_void_p, s.uint64, POINTER(c_uint64)]),
    "strata_session_set_budget": (c_int32, [_handle, s.uint64]),
    "strata_session_stats_get": (c_int32, [_handle, POINTER(s.strata_session_stats)]),
    "strata_prefill_create": (c_int32, [_handle, c_void_p, _out_handle]),
    "strata_prefill_destroy": (None, [_handle]),
    "strata_prefill_request_init": (None, [POINTER(s.strata_prefill_request), s.uint64]),
    "strata_prefill_run": (c_int32, [_handle, POINTER(s.strata_prefill_request),
                                     POINTER(s.strata_prefill_result)]),
    "strata_session_set_cache_policy": (c_int32, [_handle, POINTER(s.strata_cache_policy)]),
    "strata_decode_request_init": (None, [POINTER(s.strata_decode_request), s.uint64]),
    "strata_session_decode": (c_int32, [_handle, POINTER(s.strata_decode_request),
                                        POINTER(s.strata_decode_result)]),
}

_lock = threading.Lock()
_library: Optional[ctypes.CDLL] = None
_context: Optional[c_void_p] = None

S = TypeVar("S", bound=ctypes.Structure)


def _candidates(path: Optional[PathLike]) -> Sequence[str]:
    if path is not None:
        return [os.fspath(path)]
    if os.environ.get("STRATA_LIBRARY"):
        return [os.environ["STRATA_LIBRARY"]]
    found = ctypes.util.find_library("strata")
    return [found, "libstrata.so.0"] if found else ["libstrata.so.0"]


def _open(path: Optional[PathLike]) -> ctypes.CDLL:
    failures = []
    for name in _candidates(path):
        try:
            loaded = ctypes.CDLL(name)
        except OSError as error:
            failures.append(str(error))
            continue
        for function, (result, arguments) in _PROTOTYPES.items():
            entry = getattr(loaded, function)
            entry.restype = result
            entry.argtypes = arguments
        return loaded
    raise OSError("cannot load libstrata: " + "; ".join(failures)
                  + " (set STRATA_LIBRARY to the path of libstrata.so.0)")


def load_library(path: Optional[PathLike] = None) -> None:
    """Loads the shared library, from `path` when given. Done by itself on first use."""
    global _library
    with _lock:
        if _library is None:
            _library = _open(path)
        elif path is not None:
            raise RuntimeError("libstrata is already loaded")


def library() -> ctypes.CDLL:
    """The loaded library."""
    if _library is None:
        load_library()
    assert _library is not None
    return _library


def context() -> c_void_p:
    """The context that all objects of this process share."""
    global _context
    lib = library()
    with _lock:
        if _context is None:
            made = c_void_p()
            check(lib.strata_context_create(None, byref(made)))
            _context = made
    return _context


def check(status: int) -> None:
    """Raises what a failed status stands for."""
    if status == constants.OK:
        return
    lib = library()
    needed = lib.strata_last_error(None, 0)
    text = ctypes.create_string_buffer(needed)
    lib.strata_last_error(text, needed)
    name = lib.strata_status_name(status).decode()
    kind = Cancelled if status == constants.ERR_CANCELLED else StrataError
    raise kind(status, name, text.value.decode("utf-8", "replace"))


def sized(kind: Type[S]) -> S:
    """A zeroed structure with its struct_size."""
    made = kind()
    setattr(made, "struct_size", ctypes.sizeof(kind))
    return made


def version() -> str:
    """Version of the loaded library."""
    return str(library().strata_version_string().decode())


def build_info() -> dict[str, str]:
    """How the library was built: {"cuda": "13.0", "blas": "openblas"}."""
    facts: dict[str, str] = {}
    while True:
        text = library().strata_build_info(len(facts))
        if text is None:
            return facts
        key, _, value = text.decode().partition("=")
        facts[key] = value
