# SPDX-License-Identifier: MIT
"""
Writes and reads the one kind of GGUF file that the bundled model needs. (The `gguf` package refuses
tensor types that it lacks.)
"""

import struct

import numpy

from formats import TYPES

ALIGNMENT = 32
SCALARS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9


def _string(text):
    data = text.encode("utf-8")
    return struct.pack("<Q", len(data)) + data


def _value(kind, value):
    if kind == STRING:
        return _string(value)
    if kind == ARRAY:
        element, values = value
        return struct.pack("<IQ", element, len(values)) + b"".join(
            _value(element, v) for v in values
        )
    return struct.pack(SCALARS[kind], value)


def _padding(size):
    return b"\0" * (-size % ALIGNMENT)


def write(path, keys, tensors):
    """
    keys: (name, kind, value), an array's value being (kind of element, list). tensors: (name, shape
    rows first, type, bytes).
    """
    head = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(keys))]
    for name, kind, value in keys:
        head += [_string(name), struct.pack("<I", kind), _value(kind, value)]
    offset = 0
    for name, shape, type_, data in tensors:
        head += [
            _string(name),
            struct.pack(
                f"<I{len(shape)}QIQ", len(shape), *reversed(shape), TYPES[type_][0], offset
            ),
        ]
        offset += len(data) + len(_padding(len(data)))
    head = b"".join(head)
    with open(path, "wb") as out:
        out.write(head + _padding(len(head)))
        for *_, data in tensors:
            out.write(data + _padding(len(data)))


def read(path):
    """
    Returns keys as a dictionary, and tensors as name -> (shape rows first, type, uint8 array).
    """
    data = open(path, "rb").read()
    at = 0

    def take(form):
        nonlocal at
        values = struct.unpack_from(form, data, at)
        at += struct.calcsize(form)
        return values if len(values) > 1 else values[0]

    def text():
        nonlocal at
        length = take("<Q")
        at += length
        return data[at - length : at].decode("utf-8")

    def value(kind):
        if kind == STRING:
            return text()
        if kind == ARRAY:
            element, count = take("<IQ")
            return [value(element) for _ in range(count)]
        return take(SCALARS[kind])

    assert take("<4s") == b"GGUF"
    version, tensor_count, key_count = take("<IQQ")
    assert version == 3
    keys, infos, names = {}, [], {number: name for name, (number, _, _) in TYPES.items()}
    for _ in range(key_count):
        name = text()
        keys[name] = value(take("<I"))
    for _ in range(tensor_count):
        name = text()
        shape = [take("<Q") for _ in range(take("<I"))][::-1]
        infos.append((name, shape, names[take("<I")], take("<Q")))
    at += -at % ALIGNMENT
    tensors = {}
    for name, shape, type_, offset in infos:
        _, values, size = TYPES[type_]
        length = int(numpy.prod(shape)) // values * size
        tensors[name] = (shape, type_, numpy.frombuffer(data, numpy.uint8, length, at + offset))
    return keys, tensors
