# SPDX-License-Identifier: MIT
"""A Python user of the installed library."""
import sys

import strata

with strata.Pack(sys.argv[1]) as pack, strata.Session(pack) as session:
    tokens = session.generate_tokens([3, 4, 5], 4, temperature=0, ignore_end=True)
    print(strata.version(), list(tokens))
    assert session.length() == 6
