# SPDX-License-Identifier: MIT
"""Objects that own a handle of the library."""
from __future__ import annotations

from ctypes import c_void_p
from types import TracebackType
from typing import Optional, Type, TypeVar

T = TypeVar("T", bound="Owner")


class Owner:
    """Closed by close(), by the end of a with block, or when nothing refers to it any more."""

    _name = "object"
    _handle: Optional[c_void_p] = None

    def close(self) -> None:
        """Gives the handle back."""
        raise NotImplementedError

    def __enter__(self: T) -> T:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close()

    def __del__(self) -> None:
        if self._handle is not None:
            self.close()

    @property
    def handle(self) -> c_void_p:
        """The library's pointer."""
        if self._handle is None:
            raise ValueError(f"the {self._name} is closed")
        return self._handle
