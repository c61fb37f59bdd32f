# SPDX-License-Identifier: MIT
"""The binding's structures and constants are those of test/abi/layout.c, which is compiled."""
import ctypes
import pathlib
import re
import unittest

import strata
from strata import _structs, constants

LAYOUT = (pathlib.Path(__file__).parents[1] / "abi" / "layout.c").read_text()


def bound():
    return {name: kind for name, kind in vars(_structs).items()
            if isinstance(kind, type) and issubclass(kind, ctypes.Structure)
            and "_fields_" in vars(kind)}


class LayoutTest(unittest.TestCase):
    def test_sizes(self):
        sizes = dict(re.findall(r"^SIZE\((\w+), (\d+)\);$", LAYOUT, re.M))
        self.assertTrue(bound())
        for name, kind in bound().items():
            self.assertEqual(ctypes.sizeof(kind), int(sizes[name]), name)

    def test_fields(self):
        for name, kind in bound().items():
            rows = re.findall(rf"^FIELD\({name}, (\w+), (\d+), (\d+)\);$", LAYOUT, re.M)
            self.assertEqual([row[0] for row in rows], [field[0] for field in kind._fields_], name)
            for field, offset, size in rows:
                place = getattr(kind, field)
                self.assertEqual((place.offset, place.size), (int(offset), int(size)),
                                 f"{name}.{field}")

    def test_no_other_fields(self):
        with self.assertRaises(AttributeError):
            _structs.strata_plan_options().chunk = 3

    def test_answers_have_every_field(self):
        for answer, structure in ((strata.PackInfo, _structs.strata_pack_info),
                                  (strata.PlanInfo, _structs.strata_plan_info),
                                  (strata.PlanLayer, _structs.strata_plan_layer),
                                  (strata.SessionStats, _structs.strata_session_stats),
                                  (strata.Shortfall, _structs.strata_plan_shortfall),
                                  (strata.StateInfo, _structs.strata_state_info),
                                  (strata.TokenizerInfo, _structs.strata_tokenizer_info)):
            names = {"kv_format": "kv", "path_name": "path"}
            fields = {names.get(field[0], field[0]) for field in structure._fields_}
            self.assertEqual(set(answer._fields), fields - {"struct_size", "reserved0"}, answer)

    def test_constants(self):
        values = dict(re.findall(r"^VALUE\(STRATA_(\w+), (-?\d+)\);$", LAYOUT, re.M))
        mine = {name: value for name, value in vars(constants).items() if name.isupper()}
        self.assertEqual(mine, {name: int(value) for name, value in values.items()})


if __name__ == "__main__":
    unittest.main()
