# SPDX-License-Identifier: MIT
"""
Runs mixture-of-experts language models that are larger than the GPU.

    import strata

    with strata.Pack("model.gguf") as pack, strata.Session(pack) as session:
        for piece in session.generate("And it came to pass"):
            print(piece, end="", flush=True)

The shared library is found by the path given to load_library(), else by the environment variable
STRATA_LIBRARY, else where the system keeps libraries.
"""
from ._native import build_info, load_library, version
from .device import Device, devices, measure_costs
from .errors import Cancelled, StrataError
from .generation import Generation, Tokens
from .pack import Layer, Pack, PackInfo, Tensor, Token
from .plan import Plan, PlanInfo, PlanLayer, PlanOptions, Shortfall
from .results import DecodeResult, PrefillResult, Progress, SessionStats, StateInfo
from .sampling import Sampler, SamplingOptions
from .session import Session, state_info
from .text import Tokenizer, TokenizerInfo

__version__ = "0.1.0"

__all__ = [
    "Cancelled",
    "DecodeResult",
    "Device",
    "Generation",
    "Layer",
    "Pack",
    "PackInfo",
    "Plan",
    "PlanInfo",
    "PlanLayer",
    "PlanOptions",
    "PrefillResult",
    "Progress",
    "Sampler",
    "SamplingOptions",
    "Session",
    "SessionStats",
    "Shortfall",
    "StateInfo",
    "StrataError",
    "Tensor",
    "Token",
    "Tokenizer",
    "TokenizerInfo",
    "Tokens",
    "__version__",
    "build_info",
    "devices",
    "load_library",
    "measure_costs",
    "state_info",
    "version",
]
