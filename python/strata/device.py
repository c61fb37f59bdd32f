# SPDX-License-Identifier: MIT
"""The accelerators of this machine."""
from __future__ import annotations

from ctypes import byref, c_uint32, c_uint64, create_string_buffer
from typing import NamedTuple

from . import _structs as s, constants
from ._native import check, context, library, sized


class Device(NamedTuple):
    """One accelerator; a session takes its `id`."""

    id: str
    name: str
    uuid: str
    compute_capability: int
    multiprocessor_count: int
    memory_total_bytes: int
    memory_free_bytes: int


def devices() -> list[Device]:
    """All accelerators; an empty list when there is none. "cpu" is always there beside them."""
    count = c_uint32()
    check(library().strata_device_count(context(), byref(count)))
    found = []
    for index in range(count.value):
        info = sized(s.strata_device_info)
        check(library().strata_device_info_get(context(), index, byref(info)))
        found.append(Device(f"cuda:{index}", info.name.decode("utf-8", "replace"),
                            info.uuid.decode("utf-8", "replace"), info.compute_capability,
                            info.multiprocessor_count, info.memory_total_bytes,
                            info.memory_free_bytes))
    return found


def measure_costs(device: str = "cpu") -> str:
    """What each path costs on a device for each block format, for PlanOptions.costs; takes seconds."""
    text = create_string_buffer(constants.COSTS_MOST_BYTES)
    count = c_uint64()
    check(library().strata_costs_measure(context(), device.encode(), text, len(text), byref(count)))
    return text.value.decode()
