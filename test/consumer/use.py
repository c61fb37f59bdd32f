# SPDX-License-Identifier: MIT
"""A Python user of the installed library."""
import sys

import strata

with strata.Pack(sys.argv[1]) as pack, strata.Session(pack) as session:
    answer = session.prefill([3, 4, 5])
    print(strata.version(), answer.top(1))
