# SPDX-License-Identifier: MIT
"""Decoding, generating, the state of sequences, and experts that Python gives, on a real pack."""
import array
import contextlib
import os
import tempfile
import threading
import unittest

import strata
from strata import constants

PACK = os.environ["STRATA_TEST_PACK"]
PROMPT = list(range(3, 40))
HAS_TEXT = "chapters" in PACK


class SessionCase(unittest.TestCase):
    def setUp(self):
        self.pack = strata.Pack(PACK)
        self.addCleanup(self.pack.close)
        self.session = self.make()
        self.addCleanup(self.session.close)

    def make(self, **options):
        return strata.Session(self.pack, context=128, chunk=16, kv="f32", blas=False, sequences=3,
                              **options)

    def assert_close(self, a, b):
        self.assertEqual(len(a), len(b))
        self.assertLess(max(abs(x - y) for x, y in zip(a, b)), 1e-3)


class DecodeTest(SessionCase):
    def test_tokens_give_the_logits_of_the_prompt_path(self):
        whole = self.session.prefill(PROMPT, logits="all")
        count = self.session.vocabulary_count
        self.session.prefill(PROMPT[:-3], sequence=1, logits="none")
        step = self.session.decode(PROMPT[-3:], sequence=1, logits="all")
        self.assertEqual((step.row_count, step.positions), (3, 3))
        self.assertEqual(step.sequence_tokens, (len(PROMPT),))
        self.assert_close(step.logits, whole.logits[-3 * count:])
        self.session.truncate(len(PROMPT) - 1, sequence=1)
        last = self.session.decode(PROMPT[-1:], sequence=1)
        self.assert_close(last.logits, whole.logits[-count:])
        self.assertEqual(last.top(1)[0][0], whole.top(1)[0][0])
        self.assertEqual(self.session.stats.decode_tokens, 4)
        self.assertEqual(self.session.decode([1], sequence=1, logits="none").top(), [])

    def test_several_sequences_in_a_step(self):
        for sequence in (0, 2):
            self.session.prefill(PROMPT[:10 + sequence], sequence=sequence, logits="none")
        step = self.session.decode_step({2: [7, 8], 0: [9]})
        self.assertEqual(step.sequence_tokens, (14, 11))
        self.assertEqual((step.row_count, step.positions), (3, 2))
        alone = self.session.prefill(PROMPT[:10] + [9], sequence=1)
        self.assert_close(step.logits[self.session.vocabulary_count:], alone.logits)

    def test_numpy(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("numpy is not installed")
        self.session.prefill(PROMPT, logits="none")
        step = self.session.decode([5, 6], logits="all")
        self.assertEqual(step.numpy().shape, (2, self.session.vocabulary_count))
        self.assertTrue(numpy.isfinite(step.numpy()).all())

    def test_refusals(self):
        for tokens in ([], [10 ** 9], [1] * 17):
            with self.assertRaises(strata.StrataError):
                self.session.decode(tokens)
        with self.assertRaises(strata.StrataError):
            self.session.decode_step({})
        with self.assertRaises(OverflowError):
            self.session.decode([2 ** 32 + 1])
        with self.assertRaises(ValueError):
            self.session.decode([1], logits="some")


class CachePolicyTest(SessionCase):
    def test_policies(self):
        asked = []

        def score(layer, expert, uses, decayed):
            asked.append((layer, expert, uses, decayed))
            return 2 * decayed

        self.session.set_cache_policy(half_life=100, margin=0.5, margin_uses=3,
                                      admit_bytes=1 << 20, score=score)
        self.assertEqual(self.session._scores.native(None, 1, 2, 3, 4.5), 9)
        self.assertEqual(asked, [(1, 2, 3, 4.5)])
        self.assertTrue(self.session.decode([1]).logits)
        self.session.set_cache_policy(frozen=True)
        self.assertTrue(self.session.decode([1]).logits)
        with self.assertRaises(strata.StrataError):
            self.session.set_cache_policy(margin=-1)

    def test_what_a_score_raises_comes_out_of_the_step(self):
        def score(layer, expert, uses, decayed):
            raise KeyError(expert)

        self.session.set_cache_policy(score=score)
        self.assertEqual(self.session._scores.native(None, 0, 7, 0, 0), 0)
        with self.assertRaises(KeyError):
            self.session.decode([1])
        self.assertTrue(self.session.decode([1]).logits)


class GenerateTokensTest(SessionCase):
    def greedy(self, count):
        return self.session.generate_tokens(PROMPT, count, temperature=0, ignore_end=True)

    def test_they_are_the_likeliest_of_the_prompt_path(self):
        tokens = list(self.greedy(5))
        self.assertEqual(len(tokens), 5)
        self.assertEqual(self.session.length(), len(PROMPT) + 4)
        for i, token in enumerate(tokens):
            self.session.truncate(0, sequence=1)
            answer = self.session.prefill(PROMPT + tokens[:i], sequence=1)
            self.assertEqual(answer.top(1)[0][0], token)

    def test_it_goes_on_when_asked(self):
        tokens = self.greedy(50)
        self.assertEqual(self.session.length(), 0)  # nothing is read before it is asked for
        first = next(tokens)
        self.assertEqual((tokens.tokens, tokens.stopped_by), ([first], None))
        self.assertEqual(self.session.length(), len(PROMPT))
        next(tokens)
        self.assertEqual(self.session.length(), len(PROMPT) + 1)
        self.assertEqual(tokens.prompt, PROMPT)

    def test_count_and_context(self):
        tokens = self.greedy(0)
        self.assertEqual((list(tokens), tokens.stopped_by), ([], "count"))
        self.assertEqual(self.session.length(), 0)
        tokens = self.greedy(1000)
        self.assertEqual(len(list(tokens)), 128 - len(PROMPT) + 1)
        self.assertEqual((tokens.stopped_by, self.session.length()), ("context", 128))
        self.assertEqual(self.session.context, 128)
        with self.assertRaises(ValueError):
            self.greedy(-1)

    def test_seeds(self):
        def chosen(**sampling):
            self.session.truncate(0)
            return list(self.session.generate_tokens(PROMPT, 12, ignore_end=True, **sampling))
        self.assertEqual(chosen(temperature=2, seed=4), chosen(temperature=2, seed=4))
        self.assertNotEqual(chosen(temperature=2, seed=4), chosen(temperature=2, seed=5))
        self.assertEqual(chosen(top_k=1), chosen(temperature=0))
        for wrong in ({"temperature": -1}, {"top_p": 2}):
            with self.assertRaises(strata.StrataError):
                chosen(**wrong)
        for wrong in ({"seed": -1}, {"top_k": 2 ** 32}):
            with self.assertRaises(OverflowError):
                chosen(**wrong)
        with self.assertRaises(TypeError):
            chosen(warmth=1)
        with self.assertRaises(TypeError):
            self.session.generate_tokens(PROMPT, 2.5)
        self.assertEqual(self.session.length(), 0)  # refused before the prompt was read

    def test_cancel(self):
        tokens = self.greedy(50)
        next(tokens)
        length = self.session.length()
        canceller = threading.Timer(0, self.session.cancel)
        canceller.start()
        canceller.join()  # between calls it has no effect
        next(tokens)
        self.assertEqual(self.session.length(), length + 1)


    def test_nothing_is_read_twice(self):
        expected = list(self.greedy(4))
        for stop_at in range(1, 3 * self.pack.info.layer_count + 1):
            self.session.truncate(0)
            calls = []

            def progress(_progress):
                calls.append(None)
                return len(calls) == stop_at  # pylint: disable=cell-var-from-loop

            tokens = self.session.generate_tokens(PROMPT, 4, temperature=0, ignore_end=True,
                                                  progress=progress)
            with self.assertRaises(strata.Cancelled):
                next(tokens)
            self.assertEqual(list(tokens), expected)
            self.assertEqual(self.session.length(), len(PROMPT) + 3)
        # A choice that fails is made anew, of the same logits.
        self.session.truncate(0)
        tokens = self.greedy(4)
        found, tokens._before = tokens._before, ["no token"]
        tokens._sampler = strata.Sampler(temperature=0)
        with self.assertRaises(TypeError):
            next(tokens)
        tokens._before = found
        self.assertEqual(list(tokens), expected)
        self.assertEqual(self.session.length(), len(PROMPT) + 3)

    def test_cancelled_while_it_is_closed(self):
        for _ in range(20):
            session = self.make()

            def cancel():
                with contextlib.suppress(ValueError):
                    while True:
                        session.cancel()  # pylint: disable=cell-var-from-loop

            canceller = threading.Thread(target=cancel)
            canceller.start()
            session.close()
            canceller.join()

    def test_cancel_within_a_call_of_the_same_thread(self):
        with self.session._lock:  # where a signal may come
            self.session.cancel()
        self.assertEqual(self.session.length(), 0)


class SamplerTest(unittest.TestCase):
    def test_choices(self):
        logits = array.array("f", [0, 3, 1, 2])
        self.assertEqual(strata.Sampler(temperature=0).choose(logits), 1)
        self.assertEqual(list(logits), [0, 3, 1, 2])
        penalty = strata.Sampler(temperature=0, repetition_penalty=2)
        self.assertEqual(penalty.choose(logits, [1]), 3)
        short = strata.Sampler(temperature=0, repetition_penalty=2, repeat_last=1)
        self.assertEqual(short.choose(logits, [1, 0]), 1)
        none = strata.Sampler(temperature=0, repetition_penalty=2, repeat_last=0)
        self.assertEqual(none.choose(logits, [1]), 1)
        draws = [strata.Sampler(top_k=2, top_p=1, seed=i).choose(logits) for i in range(200)]
        self.assertEqual(set(draws), {1, 3})
        with self.assertRaises(ValueError):
            strata.Sampler(repeat_last=-1)


@unittest.skipUnless(HAS_TEXT, "the pack has no vocabulary")
class GenerateTest(SessionCase):
    TEXT = "And it came to pass"

    def setUp(self):
        super().setUp()
        if strata.build_info()["pcre2"] == "no":
            self.skipTest("built without PCRE2")

    def generate(self, *arguments, **options):
        self.session.truncate(0)
        return self.session.generate(self.TEXT, *arguments, **options)

    def test_pieces_are_the_text_of_the_tokens(self):
        generation = self.generate(30)
        pieces = list(generation)
        self.assertEqual("".join(pieces), generation.text)
        self.assertEqual(generation.text, self.pack.text(generation.tokens))
        self.assertEqual(generation.prompt, self.pack.encode(self.TEXT))
        self.assertEqual((len(generation.tokens), generation.stopped_by), (30, "count"))
        self.assertGreater(len(pieces), 20)
        self.assertTrue(all(pieces))

    def test_stop(self):
        text = "".join(self.generate(30))
        stop = text[15:21]
        generation = self.generate(30, stop=["no such text", stop])
        self.assertEqual("".join(generation), text[:text.index(stop)])
        self.assertEqual(generation.stopped_by, "text")
        self.assertEqual(list(generation), [])
        self.assertEqual("".join(self.generate(30, stop=stop)), text[:text.index(stop)])
        almost = self.generate(30, stop=[text[-3:] + "?"])  # what was held back comes at the end
        self.assertEqual("".join(almost), text)
        with self.assertRaises(ValueError):
            self.generate(stop=[""])

    def test_the_model_ends_the_text(self):
        prompt = "The grace of our Lord Jesus Christ be with you all. Amen."
        ended = self.session.generate(prompt, 5, temperature=0)
        self.assertEqual((list(ended), ended.stopped_by, ended.tokens), ([], "end", []))
        self.session.truncate(0)
        self.assertEqual(len(self.session.generate(prompt, 5, temperature=0,
                                                   ignore_end=True).tokens), 0)

    def test_it_goes_on_from_a_sequence(self):
        first = self.generate(10, temperature=0)
        text = "".join(first)
        self.session.truncate(0)
        self.session.prefill(first.prompt[:-1], logits="none")
        self.assertEqual("".join(self.session.generate(first.prompt[-1:], 10, temperature=0)),
                         text)


class Bytes:
    """Stands for Tokens whose ids are bytes, and for a pack with such a vocabulary."""

    def __init__(self, data):
        self.data = iter(data)
        self.stopped_by = None
        self.tokenizer = self

    def __next__(self):
        return next(self.data)

    def stop(self, reason):
        self.stopped_by = reason

    @staticmethod
    def decode(tokens, continued):
        assert continued
        return bytes(tokens)


class PieceTest(unittest.TestCase):
    def pieces(self, data, stop=()):
        source = Bytes(data)
        return list(strata.Generation(source, source, stop))

    def test_characters_are_whole(self):
        text = "a\u00e4\u20ac\U0001f600"
        self.assertEqual(self.pieces(text.encode()), list(text))
        self.assertEqual(self.pieces(b"\xffa\xe2\x82"), ["\ufffd", "a", "\ufffd"])
        self.assertEqual(self.pieces(b""), [])

    def test_texts_to_stop_at_are_held_back(self):
        stops = ["END", "\n\n"]
        self.assertEqual(self.pieces(b"x ENDy", stops), ["x", " "])
        self.assertEqual(self.pieces(b"ENO", stops), ["ENO"])
        self.assertEqual(self.pieces(b"a\nb\n\nc", stops), ["a", "\nb"])
        self.assertEqual(self.pieces(b"a EN", stops), ["a", " ", "EN"])


class StateTest(SessionCase):
    def rest(self, session, sequence):
        return list(session.prefill(PROMPT[20:], sequence=sequence, logits="all").logits)

    def test_fork(self):
        self.session.prefill(PROMPT[:30], logits="none")
        self.assertEqual(self.session.fork(1, length=20), 20)
        self.assertEqual(self.session.fork(2, sequence=1), 20)
        self.session.truncate(0)
        self.session.prefill(PROMPT[:20], logits="none")
        expected = self.rest(self.session, 0)
        self.assertEqual(self.rest(self.session, 1), expected)
        self.assertEqual(self.rest(self.session, 2), expected)
        with self.assertRaises(strata.StrataError) as caught:
            self.session.fork(1)
        self.assertEqual(caught.exception.status, constants.ERR_STATE)

    def test_a_budget_of_pages(self):
        with strata.Session(self.pack, context=128, sequences=8, kv_tokens=192) as session:
            with strata.Plan(self.pack, context=128, sequences=8, kv_tokens=192) as plan:
                self.assertEqual(plan.info.kv_tokens, 192)
            session.prefill(list(range(70)), logits="none")
            for to in range(1, 8):
                session.fork(to)
            session.decode([1], sequence=1)
            with self.assertRaises(strata.StrataError) as caught:
                session.decode([1], sequence=2)
            self.assertEqual(caught.exception.status, constants.ERR_CAPACITY)

    def test_save_and_restore(self):
        self.session.prefill(PROMPT[:20], logits="none")
        saved = self.session.save()
        self.assertIsInstance(saved, bytes)
        expected = self.rest(self.session, 0)
        with self.make() as other, tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "state")
            self.assertEqual(other.restore(saved, sequence=2), 20)
            self.assertEqual(other.save(path, sequence=2), b"")
            self.assertEqual(strata.state_info(path), strata.state_info(saved))
            info = strata.state_info(saved)
            self.assertEqual((info.tokens, info.kv, info.total_bytes), (20, "f32", len(saved)))
            self.assertEqual(other.restore_file(path, sequence=1), 20)
            with open(path, "rb") as file:
                self.assertEqual(file.read(), saved)
            self.assertEqual(other.restore(memoryview(bytearray(saved))), 20)
            for sequence in range(3):
                self.assertEqual(self.rest(other, sequence), expected)
            with self.assertRaises(strata.StrataError) as caught:
                other.restore(saved)
            self.assertEqual(caught.exception.status, constants.ERR_STATE)
            other.truncate(0)
            for wrong in (b"", saved[:-1], b"x" + saved[1:]):
                with self.assertRaises(strata.StrataError) as caught:
                    other.restore(wrong)
                self.assertEqual(caught.exception.status, constants.ERR_FORMAT)
            with self.assertRaises(TypeError):
                other.restore("text")
            with self.assertRaises(strata.StrataError):
                other.restore_file(folder)


class ExpertTest(SessionCase):
    def blobs(self):
        """Every expert's bytes, read from the file by its tensors' places."""
        data = {}
        for layer in range(self.pack.info.layer_count):
            for name in ("gate", "up", "down"):
                data[layer, name] = self.pack.tensor_bytes(f"blk.{layer}.ffn_{name}_exps.weight")
        return data

    def test_experts_from_python(self):
        data, asked = self.blobs(), []
        count = self.pack.info.expert_count

        def give(layer, expert):
            asked.append((layer, expert))
            return tuple(part[len(part) // count * expert:len(part) // count * (expert + 1)]
                         for part in (data[layer, name] for name in ("gate", "up", "down")))

        expected = self.session.prefill(PROMPT).logits
        with self.make(experts_from=give) as session:
            self.assertEqual(session.prefill(PROMPT).logits, expected)
            self.assertTrue(asked)
            self.assertTrue(session.decode([3]).logits)

    def test_what_it_raises_comes_out(self):
        def fail(_layer, _expert):
            raise KeyError("no such expert")

        with self.make(experts_from=fail) as session:
            with self.assertRaisesRegex(KeyError, "no such expert"):
                session.prefill(PROMPT)
        with self.make(experts_from=lambda layer, expert: (b"", b"", b"")) as session:
            with self.assertRaisesRegex(ValueError, "gate has 0 bytes"):
                session.prefill(PROMPT)
        with self.make(experts_from=lambda layer, expert: ("x", "y", "z")) as session:
            with self.assertRaises(TypeError):
                session.prefill(PROMPT)

    def test_what_it_raises_in_vain_is_forgotten(self):
        with self.assertRaises(TypeError):
            self.make(experts_from=5)
        with self.make(experts_from=lambda layer, expert: None) as session:
            session._experts._raised = KeyError("not needed")
            session._check(constants.OK)
            session._experts._raised = KeyboardInterrupt()
            with self.assertRaises(KeyboardInterrupt):
                session._check(constants.OK)
            session._check(constants.OK)

    def test_profile_and_uses(self):
        self.session.prefill(PROMPT)
        profile = self.session.profile()
        uses = self.session.expert_uses(self.pack.info.layer_count - 1)
        self.assertEqual(len(uses), self.pack.info.expert_count)
        with self.make(profile=profile) as session:
            self.assertEqual(session.profile(), profile)
        self.session.drop_experts()
        with self.assertRaises(strata.StrataError) as caught:
            self.session.set_budget(1 << 20)
        self.assertEqual(caught.exception.status, constants.ERR_UNSUPPORTED)


if __name__ == "__main__":
    unittest.main()
