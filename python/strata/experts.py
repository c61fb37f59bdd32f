# SPDX-License-Identifier: MIT
"""Experts that the application gives: for strata_session_options.expert_fn."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Optional

from . import _structs as s
from . import constants as c
from ._buffers import Memory

if TYPE_CHECKING:
    from .pack import Pack

ExpertFunction = Callable[[int, int], "tuple[Any, Any, Any]"]


class ExpertSource:
    """
    Asks a function for experts and keeps their memory. What it raises is kept until the call that
    asked has returned.
    """

    def __init__(self, function: ExpertFunction, pack: "Pack") -> None:
        if not callable(function):
            raise TypeError("experts_from is no function")
        self._function = function
        self._sizes = [(layer.gate_blob_bytes, layer.up_blob_bytes, layer.down_blob_bytes)
                       for layer in pack.layers]
        self._held: dict[tuple[int, int], list[Memory]] = {}
        self._raised: Optional[BaseException] = None
        self.native = s.expert_fn(self._ask)

    def _ask(self, _user_data: Any, layer: int, expert: int, out: Any) -> int:
        try:
            parts = [Memory(part) for part in self._function(layer, expert)]
            for part, wanted, name in zip(parts, self._sizes[layer], ("gate", "up", "down")):
                if part.count < wanted:
                    raise ValueError(f"expert {expert} of layer {layer}: {name} has {part.count} "
                                     f"bytes, not {wanted}")
            blob = out.contents
            blob.gate, blob.up, blob.down = (part.address for part in parts)
            self._held[layer, expert] = parts
            return c.OK
        except BaseException as error:  # an interrupt too: it is raised again after the call
            self._raised = error
            return c.ERR_STATE

    def raise_again(self, status: int) -> None:
        """
        What the function raised in the call that has just ended. A call that succeeded did without
        the expert, and only an interrupt comes out of it.
        """
        raised, self._raised = self._raised, None
        if raised is not None and (status != c.OK or not isinstance(raised, Exception)):
            raise raised
