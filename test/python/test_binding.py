# SPDX-License-Identifier: MIT
"""The binding on a real pack: STRATA_TEST_PACK names it, STRATA_LIBRARY the library."""
import array
import ctypes
import math
import os
import tempfile
import threading
import unittest

import strata
from strata import constants

PACK = os.environ["STRATA_TEST_PACK"]
PROMPT = list(range(3, 40))


class PackTest(unittest.TestCase):
    def test_info_and_layers(self):
        with strata.Pack(PACK) as pack:
            info = pack.info
            self.assertTrue(info.runnable, info.runnable_reason)
            self.assertGreater(info.layer_count, 0)
            self.assertEqual(len(pack.layers), info.layer_count)
            self.assertEqual(info.file_bytes, os.path.getsize(PACK))
            for layer in pack.layers:
                if layer.expert_count:
                    self.assertEqual(layer.expert_count, info.expert_count)
                    self.assertIsNotNone(layer.gate_format)
                    self.assertGreater(layer.down_blob_bytes, 0)

    def test_tensors(self):
        with strata.Pack(PACK) as pack:
            tensors = pack.tensors
            self.assertEqual(len(tensors), pack.info.tensor_count)
            embedding = next(t for t in tensors if t.name == "token_embd.weight")
            self.assertEqual(embedding.shape, (pack.info.width, pack.info.vocabulary_count))

    def test_metadata(self):
        with strata.Pack(PACK) as pack:
            self.assertEqual(pack.metadata["general.architecture"], pack.info.architecture)
            self.assertEqual(len(list(pack.metadata)), pack.info.metadata_count)
            with self.assertRaises(KeyError):
                pack.metadata["no.such.key"]
            self.assertNotIn("no.such.key", pack.metadata)

    def test_tokens(self):
        with strata.Pack(PACK) as pack:
            if not pack.info.token_count:
                self.skipTest("the pack has no vocabulary")
            pieces = [pack.token_bytes(t) for t in PROMPT]
            self.assertEqual(pack.text(PROMPT), b"".join(pieces).decode("utf-8", "replace"))
            self.assertGreater(len(pack.token(5).stored), 0)
            with self.assertRaises(strata.StrataError):
                pack.token(pack.info.token_count)

    def test_errors_carry_status_and_detail(self):
        with self.assertRaises(strata.StrataError) as caught:
            strata.Pack("/no/such/pack.gguf")
        self.assertEqual(caught.exception.status, constants.ERR_IO)
        self.assertEqual(caught.exception.name, "STRATA_ERR_IO")
        self.assertIn("/no/such/pack.gguf", caught.exception.detail)
        self.assertIn("STRATA_ERR_IO", str(caught.exception))
        with self.assertRaises(strata.StrataError) as caught:
            strata.Pack(__file__)
        self.assertEqual(caught.exception.status, constants.ERR_FORMAT)

    def test_closed(self):
        pack = strata.Pack(PACK)
        pack.close()
        pack.close()
        with self.assertRaises(ValueError):
            pack.tensors


class TextTest(unittest.TestCase):
    def setUp(self):
        self.pack = strata.Pack(PACK)
        self.addCleanup(self.pack.close)
        if not self.pack.info.token_count:
            with self.assertRaises(strata.StrataError) as raised:
                self.pack.encode("text")
            self.assertEqual(raised.exception.status, constants.ERR_UNSUPPORTED)
            self.skipTest("a pack without a vocabulary")
        if strata.build_info()["pcre2"] == "no":
            self.skipTest("built without PCRE2")

    def test_there_and_back(self):
        for text in ("And it came to pass", "  spaces\n\n", "na\u00efve \U0001F600", ""):
            tokens = self.pack.encode(text)
            self.assertEqual(self.pack.decode(tokens), text.encode())
        self.assertEqual(self.pack.decode(self.pack.encode(b"\xff\xc3")), b"\xff\xc3")
        self.assertEqual(self.pack.tokenizer.encode(b"\xff", replace_invalid=True),
                         self.pack.encode("\ufffd"))

    def test_special_tokens(self):
        info = self.pack.tokenizer.info
        self.assertEqual((info.model, info.pre), ("gpt2", "qwen2"))
        stored = self.pack.token(info.eos_token).stored
        self.assertEqual(self.pack.encode(stored, special=True), [info.eos_token])
        self.assertGreater(len(self.pack.encode(stored)), 1)
        self.assertEqual(self.pack.decode([info.eos_token]), b"")
        self.assertEqual(self.pack.decode([info.eos_token], special=True), stored)


class PlanTest(unittest.TestCase):
    def setUp(self):
        self.pack = strata.Pack(PACK)
        self.addCleanup(self.pack.close)

    def test_info_and_layers(self):
        with strata.Plan(self.pack, context=256, chunk=64) as plan:
            info = plan.info
            self.assertEqual(info.context_tokens, 256)
            self.assertEqual(info.chunk_tokens, 64)
            self.assertEqual(info.device_bytes, info.session_bytes + info.prefill_bytes)
            self.assertEqual(len(plan.layers()), self.pack.info.layer_count)
            self.assertTrue(all(layer.path and layer.reason for layer in plan.layers()))

    def test_a_session_on_a_saved_plan(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "plan")
            with strata.Plan(self.pack, context=64, chunk=16) as plan:
                plan.save(path)
                made = plan.info
            with strata.Plan.load(self.pack, path) as plan:
                self.assertEqual(plan.info, made)
                with strata.Session(self.pack, plan=plan) as session:
                    answer = session.prefill(PROMPT)
        self.assertEqual(answer.chunk_count, 3)
        with self.assertRaises(ValueError):
            strata.Session(self.pack, plan=plan, chunk=4)

    def test_shortfall(self):
        self.assertTrue(strata.Plan.shortfall(self.pack).feasible)
        short = strata.Plan.shortfall(self.pack, budget=1000)
        self.assertFalse(short.feasible)
        self.assertEqual(short.missing_bytes, short.needed_bytes - 1000)
        with self.assertRaises(strata.StrataError) as caught:
            strata.Plan(self.pack, budget=1000)
        self.assertEqual(caught.exception.status, constants.ERR_PLAN_INFEASIBLE)
        with strata.Plan(self.pack, budget=short.needed_bytes) as plan:
            self.assertLessEqual(plan.info.device_bytes, short.needed_bytes)

    def test_facts_of_a_device_that_is_not_here(self):
        facts = {"compute_capability": 86, "memory_bytes": 12 << 30,
                 "link_bytes_per_second": 25e9}
        with strata.Plan(self.pack, facts=facts, path="fp16") as plan:
            self.assertEqual({layer.path for layer in plan.layers()} - {"none"}, {"fp16"})

    def test_bad_options(self):
        with self.assertRaises(TypeError):
            strata.Plan(self.pack, budgets=3)
        for fact in ("memory_byte", "struct_size"):
            with self.assertRaisesRegex(TypeError, "unknown facts: " + fact):
                strata.Plan(self.pack, facts={"compute_capability": 86, fact: 1})
        with self.assertRaisesRegex(strata.StrataError, "8.0 .80. and later are supported"):
            strata.Plan(self.pack, facts={"compute_capability": 75})
        with self.assertRaises(ValueError):
            strata.Plan(self.pack, experts="none")


class SessionTest(unittest.TestCase):
    def setUp(self):
        self.pack = strata.Pack(PACK)
        self.session = strata.Session(self.pack, context=128, chunk=16, kv="f32", blas=False)

    def tearDown(self):
        self.session.close()
        self.pack.close()

    def test_last_and_all_logits_agree(self):
        last = self.session.prefill(PROMPT)
        self.assertIsInstance(last.logits, array.array)
        self.assertEqual(last.positions, 1)
        self.assertEqual(last.read_tokens, len(PROMPT))
        self.assertEqual(self.session.length(), len(PROMPT))
        self.assertEqual(self.session.truncate(0), 0)
        every = self.session.prefill(PROMPT, logits="all")
        self.assertEqual(every.positions, len(PROMPT))
        self.assertEqual(every.logits[-self.session.vocabulary_count:], last.logits)
        self.assertTrue(all(map(math.isfinite, every.logits)))

    def test_a_prompt_goes_on(self):
        whole = self.session.prefill(PROMPT)
        self.session.truncate(0)
        none = self.session.prefill(PROMPT[:16], logits="none")
        self.assertEqual((len(none.logits), none.positions, none.top()), (0, 0, []))
        rest = self.session.prefill(PROMPT[16:])
        self.assertEqual(rest.sequence_tokens, len(PROMPT))
        worst = max(abs(a - b) for a, b in zip(whole.logits, rest.logits))
        self.assertLess(worst, 1e-4)

    def test_top(self):
        answer = self.session.prefill(PROMPT)
        top = answer.top(3)
        self.assertEqual(len(top), 3)
        self.assertEqual(answer.logits[top[0][0]], max(answer.logits))
        self.assertTrue(1 >= top[0][1] >= top[1][1] >= top[2][1] > 0)
        everything = answer.top(len(answer.logits))
        self.assertAlmostEqual(sum(p for _, p in everything), 1, places=6)

    def test_numpy(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("numpy is not installed")
        answer = self.session.prefill(PROMPT, logits="all")
        view = answer.numpy()
        self.assertEqual(view.shape, (len(PROMPT), self.session.vocabulary_count))
        self.assertTrue(numpy.array_equal(view.ravel(), numpy.array(answer.logits)))

    def test_progress(self):
        seen = []
        self.session.prefill(PROMPT, progress=seen.append)
        self.assertGreaterEqual(len(seen), self.pack.info.layer_count * 3)
        shares = [p.share for p in seen]
        self.assertEqual(shares, sorted(shares))
        self.assertEqual(seen[0].total_tokens, len(PROMPT))

    def test_progress_stops(self):
        with self.assertRaises(strata.Cancelled) as caught:
            self.session.prefill(PROMPT, progress=lambda p: p.done_tokens >= 16)
        self.assertEqual(caught.exception.status, constants.ERR_CANCELLED)
        kept = self.session.length()  # whole chunks
        self.assertTrue(16 <= kept < len(PROMPT))
        self.assertEqual(self.session.prefill(PROMPT[kept:]).sequence_tokens, len(PROMPT))

    def test_progress_exception_comes_out(self):
        def fail(_progress):
            raise RuntimeError("from the callback")
        with self.assertRaisesRegex(RuntimeError, "from the callback"):
            self.session.prefill(PROMPT, progress=fail)
        self.session.truncate(0)
        self.session.prefill(PROMPT)

    def test_cancel_from_another_thread(self):
        started = threading.Event()

        def wait_for_cancel(_progress):
            started.set()
            canceller.join()

        def cancel():
            started.wait()
            self.session.cancel()

        canceller = threading.Thread(target=cancel)
        canceller.start()
        with self.assertRaises(strata.Cancelled):
            self.session.prefill(PROMPT, progress=wait_for_cancel)

    def test_stats(self):
        self.session.prefill(PROMPT)
        stats = self.session.stats
        self.assertEqual(stats.prompt_tokens, len(PROMPT))
        self.assertEqual(stats.prompt_chunks, 3)
        self.assertGreater(stats.prompt_ns, 0)
        self.assertGreater(stats.device_bytes, 0)

    def test_bad_arguments(self):
        with self.assertRaises(strata.StrataError) as caught:
            self.session.prefill([0, 10 ** 9])
        self.assertEqual(caught.exception.status, constants.ERR_INVALID_ARGUMENT)
        with self.assertRaises(strata.StrataError):
            self.session.prefill([])
        with self.assertRaises(strata.StrataError):
            self.session.prefill([1] * 129)
        with self.assertRaises(strata.StrataError):
            self.session.prefill(PROMPT, sequence=1)
        with self.assertRaises(ValueError):
            self.session.prefill(PROMPT, logits="some")
        with self.assertRaises(ValueError):
            strata.Session(self.pack, kv="f64")
        with self.assertRaises(strata.StrataError) as caught:
            strata.Session(self.pack, device="cuda:99")
        self.assertEqual(caught.exception.status, constants.ERR_NO_DEVICE)

    def test_numbers_that_do_not_fit_are_refused(self):
        """Not cut to the bits that C has for them."""
        with self.assertRaises(OverflowError):
            self.session.prefill([1, 2 ** 32 + 1])
        with self.assertRaises(OverflowError):
            self.session.prefill([1], sequence=2 ** 32)
        with self.assertRaises(ctypes.ArgumentError):
            self.session.length(2 ** 32)
        self.session.prefill([1, 2])
        with self.assertRaises(ctypes.ArgumentError):
            self.session.truncate(-1)
        self.assertEqual(self.session.length(), 2)
        for wrong in ({"context": 2 ** 64 + 64}, {"chunk": -1}, {"budget": -1},
                      {"sequences": 2 ** 32 + 1}, {"facts": {"memory_bytes": -1}}):
            with self.assertRaises(OverflowError, msg=wrong):
                strata.Plan(self.pack, **wrong)
        with self.assertRaises(OverflowError):
            strata.Session(self.pack, threads=-1)
        with self.assertRaises(ctypes.ArgumentError):
            self.session.truncate(1.5)

    def test_texts_with_a_nul_are_refused(self):
        with self.assertRaises(ctypes.ArgumentError):
            strata.Pack(PACK + "\0.gguf")
        with self.assertRaises(ValueError):
            strata.Session(self.pack, device="cpu\0:7")
        with self.assertRaises(ValueError):
            strata.Plan(self.pack, path="fp16\0,fused")

    def test_closing_while_a_prompt_is_read_is_refused(self):
        def close(_progress):
            with self.assertRaises(RuntimeError):
                self.session.close()

        self.assertEqual(self.session.prefill(PROMPT, progress=close).read_tokens, len(PROMPT))
        self.session.close()
        with self.assertRaises(ValueError):
            self.session.prefill(PROMPT)

    def test_the_pack_may_close_first(self):
        self.pack.close()
        self.assertEqual(self.session.prefill(PROMPT).read_tokens, len(PROMPT))


class LibraryTest(unittest.TestCase):
    def test_version_and_build(self):
        self.assertRegex(strata.version(), r"^\d+\.\d+\.\d+$")
        self.assertEqual(strata.__version__, strata.version())
        self.assertIn("cuda", strata.build_info())
        self.assertIn("blas", strata.build_info())
        self.assertIn("pcre2", strata.build_info())

    def test_devices(self):
        for device in strata.devices():
            self.assertTrue(device.id.startswith("cuda:"))

    def test_loads_once(self):
        strata.load_library()
        with self.assertRaises(RuntimeError):
            strata.load_library("/somewhere/else.so")


if __name__ == "__main__":
    unittest.main()
