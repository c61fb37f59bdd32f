#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes golden vectors of the block formats, dequantised by the installed `gguf` package.

  make_format_vectors.py test/data/formats

NAME.bin holds 1,024 values: the blocks, then the expected float32 values, little-endian. Scales are
zero, the least subnormal, subnormal, ordinary, negative and the largest half, in turn.
checksums.txt holds "NAME checksum" of 1,024 blocks of random bytes, which the test makes itself, so
that every codebook entry and also infinite and NaN scales occur. Q2_0, which the package lacks, is
dequantised here by its definition: a half scale, 2-bit codes, value = scale * (code - 1).
"""
import os
import sys

import numpy as np
import gguf

NAMES = ("F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ1_S IQ1_M IQ2_XXS IQ2_XS "
         "IQ2_S IQ3_XXS IQ3_S IQ4_NL IQ4_XS MXFP4 Q2_0").split()
VALUES = 1024
BLOCKS = 1024
SCALES = [0x0000, 0x0001, 0x03ff, 0x2c66, 0xa866, 0x7bff, 0x3c00, 0x8001]
SCALE_AT = {"Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,),
            "Q4_1": (0, 2), "Q5_1": (0, 2), "MXFP4": (), "F32": (), "F16": (), "BF16": (), "IQ1_M": ()}
MASK = np.uint64(0xffffffffffffffff)


def block_shape(name):
    """Values and bytes of a block."""
    if name == "Q2_0":
        return 64, 18
    return gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]


def dequantise(name, data):
    """data: [blocks][bytes]; gives [blocks * values] float32."""
    with np.errstate(all="ignore"):
        if name == "Q2_0":
            scale = data[:, :2].copy().view(np.float16).astype(np.float32)
            codes = (data[:, 2:, None] >> np.array([0, 2, 4, 6], dtype=np.uint8)) & np.uint8(3)
            return (scale * (codes.reshape(len(data), 64).astype(np.float32) - np.float32(1))).reshape(-1)
        kind = gguf.GGMLQuantizationType[name]
        return gguf.quants.dequantize(data.reshape(-1), kind).reshape(-1)


def set_scales(name, data):
    for i, block in enumerate(data):
        bits = SCALES[i % len(SCALES)]
        for n, at in enumerate(SCALE_AT.get(name, (0,))):
            value = SCALES[(i + 3 * n) % len(SCALES)]
            block[at], block[at + 1] = value & 255, value >> 8
        if name == "IQ1_M":
            for w in range(4):
                block[49 + 2 * w] = (int(block[49 + 2 * w]) & 0x0f) | (bits >> 4 * w & 15) << 4
        if name == "MXFP4":
            block[0] = (0, 1, 2, 3, 126, 127, 128, 252)[i % 8]


def plain_values(name, rng):
    """F32, F16 and BF16: bit patterns of finite values of all sizes."""
    bits = rng.integers(0, 1 << 16, VALUES, dtype=np.uint16)
    exponent = {"F16": 0x7c00, "BF16": 0x7f80, "F32": 0x7f80}[name]
    bits = np.where((bits & exponent) == exponent, bits & np.uint16(0x80ff), bits).astype(np.uint16)
    if name == "F32":
        low = rng.integers(0, 1 << 16, VALUES, dtype=np.uint16)
        return np.stack([low, bits], axis=1).reshape(-1).view(np.uint8).reshape(VALUES, 4)
    return bits.view(np.uint8).reshape(VALUES, 2)


def splitmix(first, count):
    """Outputs number first+1 .. first+count of the splitmix64 generator started at zero."""
    with np.errstate(over="ignore"):
        z = (np.arange(first + 1, first + count + 1, dtype=np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        return mix(z)


def mix(z):
    with np.errstate(over="ignore"):
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def checksum(name):
    _, size = block_shape(name)
    data = splitmix(0, (BLOCKS * size + 7) // 8).view(np.uint8)[:BLOCKS * size].reshape(BLOCKS, size)
    values = dequantise(name, data.copy())
    bits = values.view(np.uint32).astype(np.uint64)
    bits[np.isnan(values)] = 0x7fc00000
    with np.errstate(over="ignore"):
        places = np.arange(1, len(bits) + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        return int(mix(places ^ bits).sum(dtype=np.uint64) & MASK)


def main():
    folder = sys.argv[1]
    rng = np.random.default_rng(20)
    with open(os.path.join(folder, "checksums.txt"), "w", encoding="ascii") as sums:
        for name in NAMES:
            values, size = block_shape(name)
            if values == 1:
                data = plain_values(name, rng)
            else:
                data = rng.integers(0, 256, (VALUES // values, size), dtype=np.uint8)
                set_scales(name, data)
            expected = dequantise(name, data)
            assert expected.dtype == np.float32 and len(expected) == VALUES
            assert np.isfinite(expected).all(), name
            with open(os.path.join(folder, name + ".bin"), "wb") as f:
                f.write(data.tobytes() + expected.tobytes())
            sums.write(f"{name} {checksum(name):016x}\n")


if __name__ == "__main__":
    main()
