#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
The C interface from Python with nothing but ctypes: for bindings in other languages to copy from.

    ctypes_minimal.py LIBRARY [PACK]
"""
import ctypes
import sys


class PackInfo(ctypes.Structure):
    """The head of strata_pack_info; struct_size tells the library how much of it is known here."""

    _fields_ = [("struct_size", ctypes.c_uint32), ("runnable", ctypes.c_uint32),
                ("layer_count", ctypes.c_uint32), ("width", ctypes.c_uint32),
                ("vocabulary_count", ctypes.c_uint32), ("context_tokens", ctypes.c_uint32),
                ("expert_count", ctypes.c_uint32), ("experts_per_token", ctypes.c_uint32),
                ("sizes_and_counts", ctypes.c_uint64 * 6), ("architecture", ctypes.c_char * 64),
                ("name", ctypes.c_char * 128), ("runnable_reason", ctypes.c_char * 256)]


def check(lib, status):
    """Every call answers a status; the text of the last failure is the thread's."""
    if status:
        text = ctypes.create_string_buffer(512)
        lib.strata_last_error(text, ctypes.c_uint64(len(text)))
        sys.exit(text.value.decode())


def main():
    if len(sys.argv) < 2:
        sys.exit("usage: ctypes_minimal.py LIBRARY [PACK]")
    lib = ctypes.CDLL(sys.argv[1])
    lib.strata_version_string.restype = ctypes.c_char_p
    print("strata", lib.strata_version_string().decode())
    if len(sys.argv) < 3:
        return
    context, pack = ctypes.c_void_p(), ctypes.c_void_p()
    check(lib, lib.strata_context_create(None, ctypes.byref(context)))
    check(lib, lib.strata_pack_open_path(context, sys.argv[2].encode(), ctypes.byref(pack)))
    info = PackInfo(struct_size=ctypes.sizeof(PackInfo))
    check(lib, lib.strata_pack_info_get(pack, ctypes.byref(info)))
    print(f"{info.architecture.decode()}: {info.layer_count} layers of width {info.width}, "
          f"{info.expert_count} experts, {info.experts_per_token} for a token")
    lib.strata_pack_close(pack)
    lib.strata_context_destroy(context)


if __name__ == "__main__":
    main()
