# SPDX-License-Identifier: MIT
"""
How the tests run the strata tool: STRATA_TOOL names the program, STRATA_TEST_PACK a small pack.
"""
import os
import subprocess

TOOL = os.environ["STRATA_TOOL"]
PACK = os.environ["STRATA_TEST_PACK"]
TOKENS = "3,4,5,6,7,8,9,10"


def run(*arguments, **options):
    return subprocess.run([TOOL, *arguments], capture_output=True, text=True, timeout=120,
                          **options)


def read_until(terminal, text):
    """What a program writes to its terminal, until `text` comes or the terminal closes."""
    seen = ""
    while text is None or text not in seen:
        try:
            piece = os.read(terminal, 4096)
        except OSError:  # the other side is closed
            piece = b""
        if not piece:
            os.close(terminal)
            break
        seen += piece.decode()
    return seen
