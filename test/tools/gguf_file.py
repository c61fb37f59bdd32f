# SPDX-License-Identifier: MIT
"""Writes GGUF files, version 3, little-endian. Needs the standard library only."""
from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import BinaryIO, Iterable, Sequence

ALIGNMENT = 32
UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


@dataclass
class Tensor:
    """Name, type id, shape (fastest dimension first) and bytes of the data."""

    name: str
    type_id: int
    shape: Sequence[int]
    byte_count: int


@dataclass
class Header:
    """Metadata and tensor infos; the data is written by whoever has it."""

    entries: list[bytes] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)

    def uint32(self, key: str, value: int) -> None:
        self.entries.append(_string(key) + struct.pack("<II", UINT32, value))

    def float32(self, key: str, value: float) -> None:
        self.entries.append(_string(key) + struct.pack("<If", FLOAT32, value))

    def boolean(self, key: str, value: bool) -> None:
        self.entries.append(_string(key) + struct.pack("<IB", BOOL, value))

    def string(self, key: str, value: str) -> None:
        self.entries.append(_string(key) + struct.pack("<I", STRING) + _string(value))

    def int32_array(self, key: str, values: Sequence[int]) -> None:
        head = struct.pack("<IIQ", ARRAY, INT32, len(values))
        self.entries.append(_string(key) + head + struct.pack(f"<{len(values)}i", *values))

    def float32_array(self, key: str, values: Sequence[float]) -> None:
        head = struct.pack("<IIQ", ARRAY, FLOAT32, len(values))
        self.entries.append(_string(key) + head + struct.pack(f"<{len(values)}f", *values))

    def string_array(self, key: str, values: Iterable[str]) -> None:
        items = [_string(value) for value in values]
        head = struct.pack("<IIQ", ARRAY, STRING, len(items))
        self.entries.append(_string(key) + head + b"".join(items))

    def encode(self) -> tuple[bytes, int]:
        """The header padded to where the data starts, and the bytes of the data."""
        parts = [b"GGUF", struct.pack("<IQQ", 3, len(self.tensors), len(self.entries)), *self.entries]
        offset = 0
        for tensor in self.tensors:
            rank = len(tensor.shape)
            parts += [_string(tensor.name), struct.pack(f"<I{rank}Q", rank, *tensor.shape),
                      struct.pack("<IQ", tensor.type_id, offset)]
            offset += padded(tensor.byte_count)
        head = b"".join(parts)
        return head + b"\0" * (-len(head) % ALIGNMENT), offset


def padded(byte_count: int) -> int:
    return (byte_count + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


def write_padding(file: BinaryIO, byte_count: int) -> None:
    file.write(b"\0" * (padded(byte_count) - byte_count))


def byte_characters() -> list[str]:
    """The 256 characters that stand for bytes in a byte-level vocabulary, in byte order."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    characters, extra = [], 256
    for byte in range(256):
        if byte in printable:
            characters.append(chr(byte))
        else:
            characters.append(chr(extra))
            extra += 1
    return characters
