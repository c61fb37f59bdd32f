# SPDX-License-Identifier: MIT
"""An opened model file."""
from __future__ import annotations

import ctypes
import os
from ctypes import byref, c_double, c_int64, c_uint64, c_void_p
from typing import Any, Iterable, Iterator, Mapping, NamedTuple, Optional, Union

from . import _structs as s
from . import constants as c
from ._native import PathLike, check, context, library, sized
from ._owner import Owner
from .text import Tokenizer

Scalar = Union[int, float, bool, str]
Value = Union[Scalar, list[Scalar]]

_NO_FORMAT = 0xFFFFFFFF


class PackInfo(NamedTuple):
    """The model as a whole."""

    architecture: str
    name: str
    runnable: bool
    runnable_reason: str
    layer_count: int
    width: int
    vocabulary_count: int
    context_tokens: int
    expert_count: int
    experts_per_token: int
    file_bytes: int
    expert_bytes: int
    dense_bytes: int
    tensor_count: int
    metadata_count: int
    token_count: int


class Layer(NamedTuple):
    """One layer. Formats are names, None where the layer has no experts."""

    heads: int
    kv_heads: int
    head_size: int
    window_tokens: int
    expert_count: int
    expert_width: int
    ffn_width: int
    shared_width: int
    gate_format: Optional[str]
    up_format: Optional[str]
    down_format: Optional[str]
    gate_blob_bytes: int
    up_blob_bytes: int
    down_blob_bytes: int
    dense_bytes: int


class Tensor(NamedTuple):
    """One tensor of the file; the fastest dimension is first."""

    name: str
    format: str
    shape: tuple[int, ...]
    bytes: int
    shard: int


class Token(NamedTuple):
    """One vocabulary entry: its text as the file stores it, its type (1 normal, 3 control, ...)."""

    stored: bytes
    type: int
    score: float


class _Metadata(Mapping[str, Value]):
    """The file's metadata, read when asked for."""

    def __init__(self, pack: "Pack") -> None:
        self._pack = pack

    def __len__(self) -> int:
        return self._pack.info.metadata_count

    def __iter__(self) -> Iterator[str]:
        for index in range(len(self)):
            entry = sized(s.strata_metadata_info)
            check(library().strata_pack_metadata_get(self._pack.handle, index, byref(entry)))
            yield entry.key.decode("utf-8", "replace")

    def __getitem__(self, key: str) -> Value:
        entry = sized(s.strata_metadata_info)
        status = library().strata_pack_metadata_find(self._pack.handle, key.encode(),
                                                     byref(entry))
        if status == c.ERR_INVALID_ARGUMENT:
            raise KeyError(key)
        check(status)
        if entry.type != c.VALUE_ARRAY:
            return self._scalar(key, entry.type, 0)
        if entry.element_type == c.VALUE_ARRAY:
            raise ValueError(f"{key}: arrays of arrays are not read")
        return [self._scalar(key, entry.element_type, i) for i in range(entry.count)]

    def _scalar(self, key: str, kind: int, element: int) -> Scalar:
        lib, handle, name = library(), self._pack.handle, key.encode()
        if kind == c.VALUE_STRING:
            data, count = c_void_p(), c_uint64()
            check(lib.strata_pack_metadata_string(handle, name, element, byref(data),
                                                  byref(count)))
            return _text(data, count.value).decode("utf-8", "replace")
        if kind in (c.VALUE_FLOAT32, c.VALUE_FLOAT64):
            real = c_double()
            check(lib.strata_pack_metadata_float64(handle, name, element, byref(real)))
            return real.value
        whole = c_int64()
        check(lib.strata_pack_metadata_int64(handle, name, element, byref(whole)))
        return bool(whole.value) if kind == c.VALUE_BOOL else whole.value


def _text(data: c_void_p, count: int) -> bytes:
    return ctypes.string_at(data, count) if count else b""


class Pack(Owner):
    """An opened pack (a GGUF file). Immutable; any thread may use it."""

    _name = "pack"

    def __init__(self, path: PathLike) -> None:
        made = c_void_p()
        check(library().strata_pack_open_path(context(), os.fsencode(path), byref(made)))
        self._handle = made
        self._info: Optional[PackInfo] = None
        self._formats: dict[int, str] = {}
        self._tokenizer: Optional[Tokenizer] = None

    def close(self) -> None:
        """Closes the pack; sessions made from it keep what they need of it."""
        if self._handle is not None:
            library().strata_pack_close(self._handle)
            self._handle = None

    @property
    def info(self) -> PackInfo:
        """The model as a whole."""
        if self._info is None:
            raw = sized(s.strata_pack_info)
            check(library().strata_pack_info_get(self.handle, byref(raw)))
            self._info = PackInfo(
                raw.architecture.decode("utf-8", "replace"), raw.name.decode("utf-8", "replace"),
                bool(raw.runnable), raw.runnable_reason.decode("utf-8", "replace"),
                *(getattr(raw, field) for field in PackInfo._fields[4:]))
        return self._info

    @property
    def layers(self) -> list[Layer]:
        """Every layer that is run; empty when the pack cannot be run."""
        return [self._layer(index) for index in range(self.info.layer_count)]

    @property
    def tensors(self) -> list[Tensor]:
        """Every tensor in file order."""
        return [self._tensor(index) for index in range(self.info.tensor_count)]

    def tensor_bytes(self, name: str) -> bytes:
        """A tensor's data as the file has them."""
        raw = sized(s.strata_tensor_info)
        check(library().strata_pack_tensor_find(self.handle, name.encode(), byref(raw)))
        return _text(c_void_p(raw.data), raw.bytes)

    @property
    def metadata(self) -> Mapping[str, Value]:
        """The file's metadata by key."""
        return _Metadata(self)

    def token(self, index: int) -> Token:
        """A vocabulary entry as the file stores it."""
        raw = sized(s.strata_token_info)
        check(library().strata_pack_token_get(self.handle, index, byref(raw)))
        return Token(_text(c_void_p(raw.bytes), raw.byte_count), raw.type, raw.score)

    def token_bytes(self, index: int) -> bytes:
        """The bytes that a token stands for in a text; they may be part of a character."""
        needed = c_uint64()
        status = library().strata_pack_token_text(self.handle, index, None, 0, byref(needed))
        if status != c.ERR_BUFFER_TOO_SMALL:
            check(status)
        text = ctypes.create_string_buffer(max(needed.value, 1))
        check(library().strata_pack_token_text(self.handle, index, text, needed.value,
                                               byref(needed)))
        return text.raw[:needed.value]

    @property
    def tokenizer(self) -> Tokenizer:
        """The pack's tokenizer, made on first use."""
        if self._tokenizer is None:
            self._tokenizer = Tokenizer(self.handle)
        return self._tokenizer

    def encode(self, text: Union[str, bytes], *, special: bool = False,
               bare: bool = False) -> list[int]:
        """The tokens of a text, see Tokenizer.encode()."""
        return self.tokenizer.encode(text, special=special, bare=bare)

    def decode(self, tokens: Iterable[int], *, special: bool = False,
               continued: bool = False) -> bytes:
        """The bytes that tokens stand for, see Tokenizer.decode()."""
        return self.tokenizer.decode(tokens, special=special, continued=continued)

    def text(self, tokens: Iterable[int]) -> str:
        """The text that tokens stand for."""
        return b"".join(self.token_bytes(t) for t in tokens).decode("utf-8", "replace")

    def _tensor(self, index: int) -> Tensor:
        raw = sized(s.strata_tensor_info)
        check(library().strata_pack_tensor_get(self.handle, index, byref(raw)))
        name = raw.format_name.decode()
        self._formats[raw.format] = name
        return Tensor(raw.name.decode("utf-8", "replace"), name,
                      tuple(raw.shape[:raw.dimension_count]), raw.bytes, raw.shard)

    def _format(self, number: int) -> Optional[str]:
        if number == _NO_FORMAT:
            return None
        if number not in self._formats:
            self.tensors
        return self._formats.get(number)

    def _layer(self, index: int) -> Layer:
        raw = sized(s.strata_layer_info)
        check(library().strata_pack_layer_get(self.handle, index, byref(raw)))
        values: list[Any] = []
        for field in Layer._fields:
            number = getattr(raw, field)
            values.append(self._format(number) if field.endswith("_format") else number)
        return Layer(*values)
