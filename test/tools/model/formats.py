# SPDX-License-Identifier: MIT
"""Block formats of GGUF files in torch: find scales, find codes, decode, pack.

    grid = FORMATS["IQ2_S"]; scales = grid.fit(blocks); codes = grid.encode(blocks, scales)
    grid.decode(codes, scales) is what a reader makes of grid.pack(codes, scales), exactly.

`blocks` is (n, grid.block) in float32. Scales are found by trial: for a few sizes of the block's
half-precision scale, every sub-scale is tried and the least squared error wins. The code books are
those of the `gguf` package (pip install gguf).
"""

import gguf
import gguf.quants
import numpy
import torch

CHUNK = 1 << 18  # vectors compared with a code book at a time


def half(x):
    return x.half().float()


def book(name, device):
    table = getattr(gguf.quants, name)
    table.init_grid()
    return torch.from_numpy(table.grid.reshape(table.grid_shape).astype(numpy.float32)).to(device)


def nearest(vectors, table):
    """Index of the nearest row of `table`, for each row of `vectors`."""
    bias = -0.5 * (table * table).sum(-1)
    return torch.cat([torch.addmm(bias, part, table.T).argmax(-1) for part in vectors.split(CHUNK)])


def as_bytes(x, kind):
    """A tensor of whole numbers or halves as little-endian bytes, (n, bytes)."""
    array = x.detach().cpu().numpy().astype(kind)
    return torch.from_numpy(array.reshape(len(array), -1).view(numpy.uint8).copy())


def bits(x, widths):
    """Joins the last axis into one number, the first entry in the lowest bits."""
    out, at = torch.zeros_like(x[..., 0]), 0
    for index, width in enumerate(widths):
        out |= x[..., index] << at
        at += width
    return out


class OneScale:
    """Formats with a half scale per block and a list of levels: Q8_0, IQ4_NL, Q2_0."""

    def __init__(self, block, levels, factors):
        self.block, self.levels, self.factors = block, levels, factors

    def fit(self, blocks):
        largest = blocks.abs().amax(-1, keepdim=True)
        best, best_error = torch.zeros_like(largest), torch.full_like(largest, float("inf"))
        for factor in self.factors:
            scale = half(largest * factor)
            for _ in range(2):
                level = self.decode(self.encode(blocks, scale), torch.ones_like(scale))
                error = (level * scale - blocks).square().sum(-1, keepdim=True)
                best = torch.where(error < best_error, scale, best)
                best_error = torch.minimum(error, best_error)
                scale = half(
                    (level * blocks).sum(-1, keepdim=True)
                    / level.square().sum(-1, keepdim=True).clamp_min(1e-20)
                )
        return best

    def encode(self, blocks, scale):
        levels = torch.tensor(self.levels, dtype=torch.float32, device=blocks.device)
        middle = (levels[1:] + levels[:-1]) / 2
        inverse = torch.where(scale == 0, 0, 1 / scale)
        return torch.bucketize(blocks * inverse, middle)

    def decode(self, codes, scale):
        return scale * torch.tensor(self.levels, dtype=torch.float32, device=codes.device)[codes]

    def pack(self, codes, scale):
        n = len(codes)
        if len(self.levels) == 255:
            body = as_bytes(codes - 127, numpy.int8)
        elif len(self.levels) == 16:
            body = as_bytes(codes[:, :16] | codes[:, 16:] << 4, numpy.uint8)
        else:
            body = as_bytes(bits(codes.view(n, 16, 4), (2, 2, 2, 2)), numpy.uint8)
        return torch.cat((as_bytes(scale, numpy.float16), body), dim=1)


class Q4K:
    """Q4_K: eight sub-blocks of 32, each with a 6-bit scale and a 6-bit minimum."""

    block = 256

    def fit(self, blocks):
        x = blocks.view(-1, 8, 32)
        low, high = x.amin(-1).clamp_max(0), x.amax(-1)
        best = [torch.zeros_like(low), torch.zeros_like(low)]
        best_error = torch.full_like(low, float("inf"))
        for shrink in (1.0, 0.95, 0.9, 0.85, 0.8, 0.75):
            scale, minimum = ((high - low) * shrink / 15).clamp_min(1e-12), -low * shrink
            code = ((x + minimum[..., None]) / scale[..., None]).round().clamp(0, 15)
            error = (code * scale[..., None] - minimum[..., None] - x).square().sum(-1)
            better = error < best_error
            best = [torch.where(better, new, old) for new, old in zip((scale, minimum), best)]
            best_error = torch.minimum(error, best_error)
        d, dmin = (half(v.amax(-1, keepdim=True) / 63) for v in best)
        sub = [
            (v / unit.clamp_min(1e-12)).round().clamp(0, 63).long()
            for v, unit in zip(best, (d, dmin))
        ]
        return d, dmin, *sub

    def units(self, scales):
        d, dmin, scale, minimum = scales
        return (d * scale)[..., None], (dmin * minimum)[..., None]

    def encode(self, blocks, scales):
        scale, minimum = self.units(scales)
        return (
            ((blocks.view(-1, 8, 32) + minimum) / scale.clamp_min(1e-12))
            .round()
            .clamp(0, 15)
            .long()
        )

    def decode(self, codes, scales):
        scale, minimum = self.units(scales)
        return (scale * codes - minimum).view(-1, 256)

    def pack(self, codes, scales):
        d, dmin, scale, minimum = scales
        low = scale[:, :4] | scale[:, 4:] >> 4 << 6, minimum[:, :4] | minimum[:, 4:] >> 4 << 6
        both = scale[:, 4:] & 15 | (minimum[:, 4:] & 15) << 4
        codes = codes.view(-1, 4, 2, 32)
        body = codes[:, :, 0] | codes[:, :, 1] << 4
        return torch.cat(
            (
                as_bytes(torch.cat((d, dmin), 1), numpy.float16),
                as_bytes(torch.cat((*low, both), 1), numpy.uint8),
                as_bytes(body, numpy.uint8),
            ),
            dim=1,
        )


class Book:
    """Formats with a code book of vectors: a half scale per block of 256, a small sub-scale per group of
    values, signs apart.

    A value is d * unit(sub-scale) * code. Codes are (index, sign bits or shift).
    """

    block = 256

    def __init__(self, name, group, sub_scales, factors, signs):
        self.name, self.group, self.sub_scales, self.factors, self.signs = (
            name,
            group,
            sub_scales,
            factors,
            signs,
        )
        self.tables = {}

    def table(self, device):
        if device not in self.tables:
            table = book(self.name, device)
            if self.signs == "shift":  # codes 0 to 2047 are shifted by 1/8, the next 2048 by -1/8
                table = torch.cat((table + 0.125, table - 0.125))
            self.tables[device] = table
        return self.tables[device]

    def unit(self, d, sub):
        """In the order of operations of the reader that we check against."""
        if self.name == "IQ2_S":
            return d * (0.5 + sub.float()) * 0.25
        if self.name == "IQ3_XXS":
            return d * (0.5 + sub.float()) * 0.5
        return d * (1 + 2 * sub).float()

    def split(self, blocks):
        """
        Magnitudes and sign bits. With seven bits for eight signs, an odd count is mended where it
        costs least.
        """
        if self.signs == "shift":
            return blocks, torch.zeros_like(blocks, dtype=torch.bool)
        negative, size = blocks < 0, blocks.abs()
        if self.signs == "even":
            odd = negative.view(-1, 8).sum(-1) % 2 == 1
            flip = torch.zeros_like(blocks, dtype=torch.bool).view(-1, 8)
            flip.scatter_(-1, size.view(-1, 8).argmin(-1, keepdim=True), odd[:, None])
            flip = flip.view_as(blocks)
            negative, size = negative ^ flip, torch.where(flip, -size, size)
        return size, negative

    def match(self, size, unit):
        """Indices (n, groups, vectors) for magnitudes (n, 256) under the units (n, groups)."""
        table = self.table(size.device)
        vectors = size.view(len(size), -1, self.group) / unit[..., None].clamp_min(1e-20)
        return nearest(vectors.view(-1, table.shape[1]), table).view(
            len(size), 256 // self.group, -1
        )

    def fit(self, blocks):
        size, _ = self.split(blocks)
        groups = size.view(len(size), -1, self.group)
        table = self.table(size.device)
        one = torch.ones(1, device=size.device)
        full = table.max() * self.unit(one, torch.tensor([self.sub_scales - 1], device=size.device))
        best_total = torch.full_like(size[:, :1], float("inf"))
        best_d, best_sub = torch.zeros_like(best_total), torch.zeros_like(
            groups[..., 0], dtype=torch.long
        )
        for factor in self.factors:
            d = half(size.abs().amax(-1, keepdim=True) * factor / full)
            least = torch.full_like(groups[..., 0], float("inf"))
            chosen = torch.zeros_like(best_sub)
            for sub in range(self.sub_scales):
                unit = self.unit(d, torch.full_like(chosen, sub))
                value = table[self.match(size, unit)].view_as(groups) * unit[..., None]
                error = (value - groups).square().sum(-1)
                chosen = torch.where(error < least, sub, chosen)
                least = torch.minimum(error, least)
            total = least.sum(-1, keepdim=True)
            better = total < best_total
            best_d, best_sub = torch.where(better, d, best_d), torch.where(better, chosen, best_sub)
            best_total = torch.minimum(total, best_total)
        # With the codes fixed, the best d is a quotient.
        unit = self.unit(torch.ones_like(best_d), best_sub)
        level = (table[self.match(size, best_d * unit)].view_as(groups) * unit[..., None]).view_as(
            size
        )
        refined = half(
            (level * size).sum(-1, keepdim=True)
            / level.square().sum(-1, keepdim=True).clamp_min(1e-20)
        )
        return torch.where(refined > 0, refined, best_d), best_sub

    def encode(self, blocks, scales):
        size, negative = self.split(blocks)
        return self.match(size, self.unit(*scales)), negative

    def decode(self, codes, scales):
        index, negative = codes
        value = self.unit(*scales)[..., None] * self.table(index.device)[index].view(
            *index.shape[:2], self.group
        )
        value = value.view(len(index), 256)
        return torch.where(negative, -value, value)

    def pack(self, codes, scales):
        (index, negative), (d, sub) = codes, scales
        n = len(index)
        index = index.view(n, -1)
        signs = bits(negative.long().view(n, 32, 8), (1,) * 8)
        d = as_bytes(d, numpy.float16)
        low = as_bytes(index & 255, numpy.uint8)
        if self.name == "IQ3_XXS":
            word = bits(torch.cat((signs.view(n, 8, 4) & 127, sub[..., None]), -1), (7, 7, 7, 7, 4))
            return torch.cat((d, low, as_bytes(word, numpy.uint32)), dim=1)
        if self.name == "IQ1_M":
            shifted, high = index >> 11, index >> 8 & 7
            nibble = (high | shifted << 3).view(n, 16, 2)
            scale = d.view(n, 2).numpy().view(numpy.uint16).astype(numpy.int64)
            words = (
                bits(sub.view(n, 4, 4), (3, 3, 3, 3)).cpu()
                | torch.from_numpy(scale >> numpy.array([0, 4, 8, 12]) & 15) << 12
            )
            return torch.cat(
                (low, as_bytes(bits(nibble, (4, 4)), numpy.uint8), as_bytes(words, numpy.uint16)),
                dim=1,
            )
        nibbles = as_bytes(bits(sub.view(n, -1, 2), (4, 4)), numpy.uint8)
        if self.name == "IQ3_S":
            high = as_bytes(bits((index >> 8).view(n, 8, 8), (1,) * 8), numpy.uint8)
            return torch.cat((d, low, high, as_bytes(signs, numpy.uint8), nibbles), dim=1)
        high = as_bytes(bits((index >> 8).view(n, 8, 4), (2,) * 4), numpy.uint8)
        return torch.cat((d, low, as_bytes(signs, numpy.uint8), high, nibbles), dim=1)


FORMATS = {
    "Q8_0": OneScale(32, list(range(-127, 128)), (1 / 127,)),
    "Q2_0": OneScale(
        64, [-1, 0, 1, 2], [sign * f for f in (0.4, 0.5, 0.6, 0.75, 0.9) for sign in (1, -1)]
    ),
    "IQ4_NL": OneScale(
        32,
        list(gguf.quants.IQ4_NL.kvalues),
        [s / 118 for f in (0.85, 0.93, 1.0, 1.08) for s in (f, -f)],
    ),
    "Q4_K": Q4K(),
    "IQ3_S": Book("IQ3_S", 32, 16, (0.7, 0.8, 0.9, 1.0, 1.1), "all"),
    "IQ3_XXS": Book("IQ3_XXS", 32, 16, (0.6, 0.7, 0.8, 0.9, 1.0), "even"),
    "IQ2_S": Book("IQ2_S", 16, 16, (0.6, 0.7, 0.8, 0.9, 1.0), "all"),
    "IQ1_M": Book("IQ1_M", 16, 8, (0.35, 0.45, 0.55, 0.65, 0.8), "shift"),
}
# Name -> id, values and bytes per block in a GGUF file.
TYPES = {
    "F32": (0, 1, 4),
    "Q8_0": (8, 32, 34),
    "Q4_K": (12, 256, 144),
    "IQ3_XXS": (18, 256, 98),
    "IQ4_NL": (20, 32, 18),
    "IQ3_S": (21, 256, 110),
    "IQ2_S": (22, 256, 82),
    "IQ1_M": (29, 256, 56),
    "Q2_0": (42, 64, 18),
}


def unpack(data, name):
    """
    Decodes packed blocks (uint8 array) by the `gguf` package; Q2_0, which it lacks, by its
    definition.
    """
    if name == "Q2_0":
        blocks = data.reshape(-1, 18)
        d = blocks[:, :2].copy().view(numpy.float16).astype(numpy.float32)
        codes = blocks[:, 2:, None] >> numpy.array([0, 2, 4, 6], dtype=numpy.uint8) & 3
        return (d * (codes.reshape(-1, 64).astype(numpy.float32) - 1)).ravel()
    if name == "F32":
        return data.view(numpy.float32).ravel()
    return gguf.quants.dequantize(
        data.reshape(-1, TYPES[name][2]), gguf.GGMLQuantizationType[name]
    ).ravel()
