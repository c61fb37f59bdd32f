# SPDX-License-Identifier: MIT
"""The memory of any object that has some (bytes, mmap, numpy), without a copy of it."""
from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, byref, c_char_p, c_int, c_ssize_t, c_void_p, py_object
from typing import Any


class _Buffer(Structure):
    """Py_buffer of Python's C API."""

    _fields_ = [
        ("buf", c_void_p),
        ("obj", py_object),
        ("len", c_ssize_t),
        ("itemsize", c_ssize_t),
        ("readonly", c_int),
        ("ndim", c_int),
        ("format", c_char_p),
        ("shape", c_void_p),
        ("strides", c_void_p),
        ("suboffsets", c_void_p),
        ("internal", c_void_p),
    ]


_get = ctypes.pythonapi.PyObject_GetBuffer
_get.argtypes = [py_object, POINTER(_Buffer), c_int]
_get.restype = c_int
_release = ctypes.pythonapi.PyBuffer_Release
_release.argtypes = [POINTER(_Buffer)]
_release.restype = None
_SIMPLE = 0


class Memory:
    """Holds an object's memory as long as this lives. TypeError: it has none in one piece."""

    def __init__(self, owner: Any) -> None:
        self._view = _Buffer()
        self._held = False
        _get(py_object(owner), byref(self._view), _SIMPLE)  # raises by itself
        self._held = True

    def __del__(self) -> None:
        if self._held:
            self._held = False
            _release(byref(self._view))

    @property
    def address(self) -> int:
        """Of the first byte."""
        return self._view.buf or 0

    @property
    def count(self) -> int:
        """Bytes."""
        return int(self._view.len)
