# SPDX-License-Identifier: MIT
"""
Runs mixture-of-experts language models that are larger than the GPU.

    import strata

    with strata.Pack("model.gguf") as pack, strata.Session(pack) as session:
        answer = session.prefill([1, 2, 3])
        print(answer.top(5))

The shared library is found by the path given to load_library(), else by the environment variable
STRATA_LIBRARY, else where the system keeps libraries.
"""
from ._native import build_info, load_library, version
from .device import Device, devices
from .errors import Cancelled, StrataError
from .pack import Layer, Pack, PackInfo, Tensor, Token
from .plan import Plan, PlanInfo, PlanLayer, PlanOptions, Shortfall
from .session import PrefillResult, Progress, Session, SessionStats
from .text import Tokenizer, TokenizerInfo

__all__ = [
    "Cancelled",
    "Device",
    "Layer",
    "Pack",
    "PackInfo",
    "Plan",
    "PlanInfo",
    "PlanLayer",
    "PlanOptions",
    "PrefillResult",
    "Progress",
    "Session",
    "SessionStats",
    "Shortfall",
    "StrataError",
    "Tensor",
    "Token",
    "Tokenizer",
    "TokenizerInfo",
    "build_info",
    "devices",
    "load_library",
    "version",
]
