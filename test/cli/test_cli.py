# SPDX-License-Identifier: MIT
"""
The strata tool as its users see it: exit codes, messages, text and JSON.
"""
import array
import json
import math
import os
import pathlib
import pty
import re
import signal
import subprocess
import sys
import tempfile
import unittest

from tool import PACK, TOKENS, TOOL, read_until, run


class UsageTest(unittest.TestCase):
    def assert_usage(self, text, *arguments):
        done = run(*arguments)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertIn(text, done.stderr)

    def test_no_command(self):
        self.assert_usage("Usage: strata COMMAND")

    def test_unknown_command(self):
        self.assert_usage('no command "frob"', "frob")

    def test_missing_and_extra_pack(self):
        self.assert_usage("name a pack", "inspect")
        self.assert_usage(f'"{PACK}" is one argument too many', "inspect", PACK, PACK)
        self.assert_usage('"hello" is one argument too many', "generate", PACK, "hello")
        self.assert_usage("name a pack", "prefill", "--random", "3")

    def test_unknown_option(self):
        self.assert_usage("unrecognized option", "inspect", PACK, "--frob")

    def test_prompt_is_given_once(self):
        for command in ("prefill", "generate"):
            self.assert_usage("give one prompt", command, PACK)
            self.assert_usage("give one prompt", command, PACK, "--text", "a", "--tokens", "1")
            self.assert_usage("give one prompt", command, PACK, "--text", "a", "--text-file", "b")
            self.assert_usage("--special goes with", command, PACK, "--tokens", "1", "--special")
        self.assert_usage("give one prompt", "prefill", PACK, "--random", "3", "--tokens", "1")
        self.assert_usage("unrecognized option", "generate", PACK, "--random", "3")
        self.assert_usage("--seed goes with", "prefill", PACK, "--tokens", "1", "--seed", "3")
        self.assert_usage("--echo goes with", "generate", PACK, "--tokens", "1", "--echo", "--json")

    def test_bad_values(self):
        for option, value in [("--budget", "12XB"), ("--budget", "0"), ("--context", "0"),
                              ("--context", "-4"), ("--chunk", "x"), ("--kv", "f64"),
                              ("--experts", "some"), ("--threads", "0"), ("--random", "0"),
                              ("--seed", "1.5"), ("--top", "many"), ("--host-budget", "")]:
            self.assert_usage(option + ":", "prefill", PACK, "--random", "3", option, value)

    def test_bad_sampling(self):
        for option, value in [("--temperature", "-1"), ("--temperature", "hot"), ("--top-p", "1.5"),
                              ("--top-k", "-1"), ("--min-p", "nan"), ("--repeat-penalty", "0"),
                              ("--repeat-last", "x"), ("--seed", "1.5"), ("--count", "-1"),
                              ("--stop", "")]:
            self.assert_usage(option + ":", "generate", PACK, "--tokens", "3", option, value)
        stops = [word for i in range(17) for word in ("--stop", str(i))]
        self.assert_usage("at most 16", "generate", PACK, "--tokens", "3", *stops)

    def test_a_saved_plan_takes_no_other_options(self):
        for option in (["--budget", "1M"], ["--context", "9"], ["--chunk", "8"], ["--path", "fp16"],
                       ["--kv", "f16"], ["--experts", "auto"], ["--costs", "x"], ["--lend"]):
            done = run("prefill", PACK, "--tokens", "1", "--plan", "x", *option)
            self.assertEqual(done.returncode, 2)
            self.assertIn("--plan", done.stderr)

    def test_all_logits_wants_a_file(self):
        self.assert_usage("--all-logits goes with --logits", "prefill", PACK, "--random", "3",
                          "--all-logits")

    def test_help_and_version(self):
        for arguments in (["--help"], ["help"], ["inspect", "--help"], ["prefill", "--help"],
                          ["generate", "--help"], ["--version"]):
            done = run(*arguments)
            self.assertEqual((done.returncode, done.stderr), (0, ""), arguments)
            self.assertIn("strata", done.stdout)


class TokenizeTest(unittest.TestCase):
    TEXT = "And it came to pass\n<|endoftext|>"

    def setUp(self):
        done = run("tokenize", PACK, "--text", "a")
        if "chapters" in PACK:
            if "pcre2=no" in run("--version").stdout:
                self.assertIn("built without", done.stderr)
                self.skipTest("built without PCRE2")
            return
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("STRATA_ERR_UNSUPPORTED", done.stderr)
        self.skipTest("a pack without a vocabulary")

    def tokenize(self, *arguments, **options):
        done = run("tokenize", PACK, "--json", *arguments, **options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_text_and_file(self):
        answer = self.tokenize("--text", self.TEXT)
        self.assertEqual("".join(answer["texts"]), self.TEXT)
        self.assertEqual(answer["token_count"], len(answer["tokens"]))
        self.assertEqual(self.tokenize("--file", "-", input=self.TEXT), answer)
        special = self.tokenize("--text", self.TEXT, "--special")
        self.assertLess(special["token_count"], answer["token_count"])
        lines = run("tokenize", PACK, "--text", self.TEXT).stdout.splitlines()
        self.assertEqual([int(line.split("\t")[0]) for line in lines], answer["tokens"])
        self.assertEqual(run("tokenize", PACK, "--text", "").stdout, "")

    def test_prompt(self):
        tokens = self.tokenize("--text", "In the beginning")["tokens"]
        listed = run("prefill", PACK, "--json", "--tokens", ",".join(map(str, tokens)))
        texted = run("prefill", PACK, "--json", "--text", "In the beginning")
        self.assertEqual(texted.returncode, 0, texted.stderr)
        self.assertEqual(json.loads(texted.stdout)["next"], json.loads(listed.stdout)["next"])
        done = run("prefill", PACK, "--text", "")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no tokens", done.stderr)

    def test_usage(self):
        for arguments in ([], ["--text", "a", "--file", "b"]):
            done = run("tokenize", PACK, *arguments)
            self.assertEqual(done.returncode, 2)
            self.assertIn("give one of --text and --file", done.stderr)
        done = run("tokenize", PACK, "--file", "/no/such/file")
        self.assertEqual(done.returncode, 1)
        self.assertIn("/no/such/file: cannot be read", done.stderr)


class GenerateTest(unittest.TestCase):
    SPEEDS = r"strata: prompt 8 tokens, [0-9.]+ tokens/s; generated {} tokens, [0-9.]+ tokens/s"

    def generate(self, *arguments, code=0, **options):
        done = run("generate", PACK, "--json", "--tokens", TOKENS, *arguments, **options)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(len(done.stdout.splitlines()), 1)
        return json.loads(done.stdout)

    def test_text_and_speeds(self):
        done = run("generate", PACK, "--tokens", TOKENS, "-n", "12", "--ignore-end")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, "^" + self.SPEEDS.format(12))
        answer = self.generate("-n", "12", "--ignore-end")
        self.assertEqual(done.stdout, answer["answer"]["text"] + "\n")
        self.assertEqual(answer["answer"]["stopped_by"], "count")
        self.assertEqual(answer["answer"]["token_count"], 12)
        self.assertEqual(len(answer["answer"]["tokens"]), 12)
        self.assertEqual(answer["answer"]["decode_steps"], 11)
        self.assertEqual(answer["stats"]["prompt_tokens"], 8)
        self.assertEqual(answer["stats"]["decode_tokens"], 11)
        self.assertGreater(answer["answer"]["first_text_ns"], 0)

    def test_the_likeliest_tokens_are_those_of_the_prompt_path(self):
        exact = ("--no-blas", "--kv", "f32", "--context", "40")
        tokens = self.generate("-n", "6", "--temperature", "0", "--ignore-end",
                               *exact)["answer"]["tokens"]
        self.assertEqual(len(tokens), 6)
        for i in range(6):
            prompt = TOKENS + "".join(f",{token}" for token in tokens[:i])
            done = run("prefill", PACK, "--json", "--tokens", prompt, "--top", "1", *exact)
            self.assertEqual(json.loads(done.stdout)["next"][0]["token"], tokens[i])

    def test_seeds(self):
        chosen = {seed: self.generate("-n", "20", "--seed", seed, "--temperature", "2")["answer"]
                  for seed in ("1", "2")}
        self.assertEqual(self.generate("-n", "20", "--temperature", "2")["answer"]["tokens"],
                         chosen["1"]["tokens"])
        self.assertNotEqual(chosen["1"]["tokens"], chosen["2"]["tokens"])
        self.assertEqual(self.generate("-n", "9", "--top-k", "1")["answer"]["tokens"],
                         self.generate("-n", "9", "--temperature", "0")["answer"]["tokens"])

    def test_repetition_penalty(self):
        def most(*options):
            tokens = self.generate("-n", "60", "--temperature", "0", "--ignore-end",
                                   *options)["answer"]["tokens"]
            return max(tokens.count(token) for token in tokens)
        self.assertLess(most("--repeat-penalty", "100", "--repeat-last", "1000"), most())

    def test_no_tokens(self):
        done = run("generate", PACK, "--tokens", TOKENS, "-n", "0")
        self.assertEqual((done.returncode, done.stdout), (0, ""))
        self.assertIn("generated 0 tokens", done.stderr)

    def test_the_context_is_the_end(self):
        answer = self.generate("-n", "50", "--context", "10", "--ignore-end")["answer"]
        self.assertEqual(answer["stopped_by"], "context")
        self.assertEqual(answer["token_count"], 3)
        done = run("generate", PACK, "--tokens", TOKENS, "--context", "7")
        self.assertEqual((done.returncode, done.stdout), (1, ""))

    def start(self, *arguments):
        return subprocess.Popen([TOOL, "generate", PACK, "--tokens", TOKENS, "--ignore-end",
                                 *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def test_going_on_from_a_saved_sequence(self):
        exact = ("--no-blas", "--kv", "f32", "--temperature", "0", "--ignore-end")
        whole = self.generate("-n", "12", *exact)["answer"]["tokens"]
        head, tail = TOKENS.rsplit(",", 3)[0], ",".join(TOKENS.split(",")[-3:])
        with tempfile.TemporaryDirectory() as folder:
            state, later = os.path.join(folder, "state"), os.path.join(folder, "later")
            done = run("prefill", PACK, "--tokens", head, "--no-blas", "--kv", "f32",
                       "--save-state", state)
            self.assertEqual(done.returncode, 0, done.stderr)

            def go_on(tokens, *arguments):
                done = run("generate", PACK, "--json", "--tokens", tokens, *arguments, *exact)
                self.assertEqual(done.returncode, 0, done.stderr)
                answer = json.loads(done.stdout)
                return answer["stats"]["prompt_tokens"], answer["answer"]["tokens"]

            self.assertEqual(go_on(tail, "--state", state, "-n", "12"), (3, whole))
            go_on(tail, "--state", state, "-n", "5", "--save-state", later)
            self.assertEqual(go_on(str(whole[4]), "--state", later, "-n", "7"), (1, whole[5:]))
            with open(state, "r+b") as file:
                file.truncate(1000)
            done = run("generate", PACK, "--tokens", tail, "--state", state, *exact)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn(state + ": the saved sequence is cut off", done.stderr)
            done = run("generate", PACK, "--tokens", tail, "--state", folder, *exact)
            self.assertEqual(done.returncode, 1)
            self.assertIn(folder + ": cannot read the sequence", done.stderr)
            done = run("prefill", PACK, "--tokens", tail, "--save-state", folder)
            self.assertEqual(done.returncode, 1)

    def test_an_interrupt_keeps_what_was_written(self):
        running = self.start("-n", "4000", "--context", "4096", "--threads", "1")
        first = running.stdout.read(1)  # it comes while the rest is still to be generated
        running.send_signal(signal.SIGINT)
        rest, messages = running.communicate(timeout=60)
        self.assertEqual(running.returncode, 130, messages)
        self.assertTrue((first + rest).endswith(b"\n"))
        self.assertIn(b"interrupted", messages)

    def test_an_interrupt_stops_the_prompt(self):
        terminal, theirs = pty.openpty()
        prompt = ",".join(["3"] * 4000)
        running = subprocess.Popen([TOOL, "generate", PACK, "--tokens", prompt, "--chunk", "8",
                                    "--threads", "1"], stdout=subprocess.PIPE, stderr=theirs)
        os.close(theirs)
        read_until(terminal, "tokens/s")
        running.send_signal(signal.SIGINT)
        messages = read_until(terminal, None)
        out, _ = running.communicate(timeout=60)
        self.assertEqual((running.returncode, out), (130, b""), messages)
        self.assertIn("generated 0 tokens", messages)

    def test_a_full_disk_is_told(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full")
        with open("/dev/full", "wb") as full:
            done = subprocess.run([TOOL, "generate", PACK, "--tokens", TOKENS, "--ignore-end"],
                                  stdout=full, stderr=subprocess.PIPE, timeout=60, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"cannot write to standard output", done.stderr)
        # Nothing of what a call of the library refused before.
        self.assertIn(b"cannot generate: a file could not be opened, read or written", done.stderr)


@unittest.skipUnless("chapters" in PACK, "a pack without a vocabulary")
class GenerateTextTest(unittest.TestCase):
    PROMPT = "And it came to pass after"

    def setUp(self):
        if "pcre2=no" in run("--version").stdout:
            self.skipTest("built without PCRE2")

    def generate(self, *arguments, **options):
        done = run("generate", PACK, *arguments, **options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_text_and_file(self):
        text = self.generate("--text", self.PROMPT, "-n", "30")
        self.assertGreater(len(text.split()), 10)
        self.assertEqual(self.generate("--text-file", "-", "-n", "30", input=self.PROMPT), text)
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write(self.PROMPT)
            file.flush()
            self.assertEqual(self.generate("--text-file", file.name, "-n", "30"), text)
        self.assertEqual(self.generate("--text", self.PROMPT, "-n", "30", "--echo"),
                         self.PROMPT + text)
        done = run("generate", PACK, "--text-file", "/no/such/file")
        self.assertEqual(done.returncode, 1)
        self.assertIn("/no/such/file: cannot be read", done.stderr)

    def test_stop(self):
        text = self.generate("--text", self.PROMPT, "-n", "30")
        stop = text[20:26]
        self.assertEqual(self.generate("--text", self.PROMPT, "-n", "30", "--stop", "no such text",
                                       "--stop", stop), text[:text.index(stop)] + "\n")
        answer = json.loads(self.generate("--text", self.PROMPT, "-n", "30", "--stop", stop,
                                          "--json"))["answer"]
        self.assertEqual(answer["stopped_by"], "text")
        self.assertEqual(answer["text"], text[:text.index(stop)])

    def test_the_model_ends_the_text(self):
        prompt = "The grace of our Lord Jesus Christ be with you all. Amen."
        likeliest = ("--text", prompt, "--temperature", "0", "-n", "5")
        answer = json.loads(self.generate(*likeliest, "--json"))["answer"]
        self.assertEqual((answer["stopped_by"], answer["token_count"]), ("end", 0))
        self.assertEqual(self.generate(*likeliest), "")
        answer = json.loads(self.generate(*likeliest, "--json", "--ignore-end"))["answer"]
        self.assertEqual((answer["stopped_by"], answer["token_count"]), ("count", 5))

    def test_a_terminal_gets_text(self):
        terminal, theirs = pty.openpty()
        running = subprocess.Popen([TOOL, "generate", PACK, "--text", self.PROMPT, "-n", "30"],
                                   stdout=theirs, stderr=subprocess.PIPE)
        os.close(theirs)
        shown = read_until(terminal, None)
        running.communicate(timeout=60)
        self.assertEqual(running.returncode, 0)
        self.assertEqual(shown.replace("\r\n", "\n"),
                         self.generate("--text", self.PROMPT, "-n", "30"))


class InspectTest(unittest.TestCase):
    def test_text(self):
        done = run("inspect", PACK)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for word in ("architecture", "runnable      yes", "layers", "experts", "gate"):
            self.assertIn(word, done.stdout)

    def test_json(self):
        done = run("inspect", PACK, "--json", "--tensors", "--metadata")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        answer = json.loads(done.stdout)
        self.assertEqual(answer["file_bytes"], os.path.getsize(PACK))
        self.assertEqual(len(answer["layers"]), answer["layer_count"])
        self.assertEqual(len(answer["tensors"]), answer["tensor_count"])
        self.assertEqual(len(answer["metadata"]), answer["metadata_count"])
        self.assertEqual(answer["metadata"]["general.architecture"], answer["architecture"])
        blobs = sum(layer["expert_count"] * (layer["gate_blob_bytes"] + layer["up_blob_bytes"]
                                             + layer["down_blob_bytes"])
                    for layer in answer["layers"] if layer["expert_count"])
        self.assertEqual(blobs, answer["expert_bytes"])
        self.assertEqual(len(done.stdout.splitlines()), 1)


class BenchTest(unittest.TestCase):
    def test_json(self):
        done = run("bench", PACK, "--json", "--prompts", "8,30", "--repeat", "2", "--chunk", "8")
        self.assertEqual(done.returncode, 0, done.stderr)
        prompts = json.loads(done.stdout)["prompts"]
        self.assertEqual([p["tokens"] for p in prompts], [8, 30])
        self.assertEqual([p["chunks"] for p in prompts], [1, 4])
        for p in prompts:
            self.assertTrue(0 < p["least_ns"] <= p["median_ns"] <= p["most_ns"])
            self.assertAlmostEqual(p["tokens_per_second"], 1e9 * p["tokens"] / p["median_ns"], 3)

    def test_decode(self):
        done = run("bench", PACK, "--json", "--prompts", "8,30", "--repeat", "2", "--decode", "5",
                   "--rows", "3")
        self.assertEqual(done.returncode, 0, done.stderr)
        for p in json.loads(done.stdout)["prompts"]:
            decode = p["decode"]
            self.assertEqual([decode[key] for key in ("steps", "rows", "rounds")], [5, 3, 2])
            self.assertEqual(decode["stats"]["decode_tokens"], 5 * 3 * 2)
            self.assertEqual(decode["stats"]["decode_steps"], 5 * 2)
            self.assertEqual(decode["stats"]["prompt_tokens"], 0)
            self.assertEqual(p["stats"]["decode_tokens"], 0)
            self.assertAlmostEqual(decode["tokens_per_second"], 15e9 / decode["median_ns"], 3)
            self.assertEqual(decode["hit_rate"], 1)
        done = run("bench", PACK, "--prompts", "8", "--decode", "4")
        self.assertRegex(done.stdout, "\ndecode: 4 steps of 1 token, [0-9.]+ tokens/s; the first time after")
        for bad in (("--decode", "0"), ("--decode", "x"), ("--decode", "4", "--rows", "17"),
                    ("--rows", "2")):
            self.assertEqual(run("bench", PACK, *bad).returncode, 2)

    def test_cold_with_a_profile(self):
        with tempfile.TemporaryDirectory() as folder:
            profile = os.path.join(folder, "profile")
            for _ in range(2):
                done = run("bench", PACK, "--json", "--prompts", "8", "--cold", "--profile", profile)
                self.assertEqual(done.returncode, 0, done.stderr)
                answer = json.loads(done.stdout)
                self.assertTrue(answer["cold"])
                self.assertGreater(answer["first_logits_ns"], 0)
                stats = answer["prompts"][0]["stats"]
                parts = stats["kernel_ns"] + stats["blob_wait_ns"] + stats["host_gap_ns"]
                self.assertAlmostEqual(parts / stats["prompt_ns"], 1, delta=0.02)
                self.assertEqual(stats["prompt_tokens"], 3 * 8)
            # A profile that is there and cannot be read is told.
            self.assertEqual(run("bench", PACK, "--prompts", "8", "--profile", folder).returncode, 1)

    def test_text(self):
        done = run("bench", PACK, "--prompts", "8")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, "\nmemory [0-9.]+ [KM]iB, in and out [0-9.]+ [KM]iB\n")

    def test_lend(self):
        commands = (("bench", PACK, "--prompts", "8", "--repeat", "2", "--decode", "2"),
                    ("compare", PACK, "--random", "4"),
                    ("generate", PACK, "--tokens", "1,2", "-n", "2"))
        for command in commands:
            for option in ("--lend", "--lend=prompt", "--lend=keep"):
                done = run(*command, option)
                self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(run(*command, "--lend=maybe").returncode, 2)
        # The same bits in lent memory.
        answers = []
        for option in ([], ["--lend"], ["--lend=keep"]):
            done = run("prefill", PACK, "--random", "20", "--json", "--top", "5", *option)
            self.assertEqual(done.returncode, 0, done.stderr)
            answers.append(json.loads(done.stdout))
        for answer in answers[1:]:
            self.assertEqual(answer["next"], answers[0]["next"])

    def test_prompts_are_its_own(self):
        self.assertEqual(run("bench", PACK, "--tokens", "1,2").returncode, 2)

    def test_bad_lengths(self):
        for lengths in ("", "0", "8,x", "-4", "8,,9", "8,"):
            self.assertEqual(run("bench", PACK, "--prompts=" + lengths).returncode, 2)


class CompareTest(unittest.TestCase):
    def compare(self, *arguments):
        done = run("compare", PACK, "--json", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_equal_settings_do_not_differ(self):
        answer = self.compare("--random", "40", "--lengths", "8,40", "--positions", "16",
                              "--a", "path=fp16", "--a", "kv=f16;path=fp16")
        self.assertEqual(answer["reference"], "path=fp16")
        self.assertEqual([(c["setting"], c["prompt_tokens"], c["positions"])
                          for c in answer["comparisons"]],
                         [("path=fp16", 8, 8), ("path=fp16", 40, 16),
                          ("kv=f16;path=fp16", 8, 8), ("kv=f16;path=fp16", 40, 16)])
        for c in answer["comparisons"]:
            self.assertEqual((c["kl_mean"], c["kl_most"], c["max_abs_difference"]), (0, 0, 0))
            self.assertEqual((c["same_top_share"], c["same_last_top"]), (1, True))

    def test_other_cache_differs(self):
        answer = self.compare("--random", "40", "--a", "kv=q8_0", "--b", "kv=f32")
        self.assertGreater(answer["comparisons"][0]["kl_mean"], 0)
        self.assertGreater(answer["comparisons"][0]["max_abs_difference"], 0)

    def test_int8_paths_stay_close(self):
        tokens = pathlib.Path(PACK).with_name("strata-chapters-heldout-ids.txt")
        if not tokens.exists():
            self.skipTest("no text for this pack")
        answer = self.compare("--tokens-file", str(tokens), "--context", "2048")
        self.assertEqual([c["setting"] for c in answer["comparisons"]], ["path=fused", "path=mmq"])
        for c in answer["comparisons"]:
            self.assertEqual((c["prompt_tokens"], c["positions"]), (2048, 256))
            self.assertTrue(0 < c["kl_mean"] < 0.004, c)
            self.assertTrue(c["same_last_top"])

    def test_text(self):
        done = run("compare", PACK, "--random", "9", "--a", "kv=q8_0")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("kv=q8_0", done.stdout)
        self.assertIn("against path=fp16", done.stdout)

    def test_bad_settings(self):
        for setting in ("path", "kv=f64", "chunk=0", "colour=red", "x" * 300, "",
                        "kv=f16;;chunk=8", "kv=f16;"):
            done = run("compare", PACK, "--random", "9", "--a", setting)
            self.assertEqual((done.returncode, done.stdout), (1, ""), setting)
        for lengths in ("0", "10", "2,x"):
            done = run("compare", PACK, "--random", "9", "--lengths", lengths)
            self.assertEqual((done.returncode, done.stdout), (1, ""), lengths)
        for option in (("--positions", "0"), ("--profile", "x")):
            self.assertEqual(run("compare", PACK, "--random", "9", *option).returncode, 2)


class PlanTest(unittest.TestCase):
    def plan(self, *arguments, code=0):
        done = run("plan", PACK, "--json", *arguments)
        self.assertEqual(done.returncode, code, done.stderr)
        return json.loads(done.stdout)

    def test_text(self):
        done = run("plan", PACK, "--context", "100")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("device memory", done.stdout)
        self.assertNotIn("page-locked", done.stdout)
        other = run("plan", PACK, "--context", "100", "--compute-capability", "86")
        self.assertIn("device memory", other.stdout)
        self.assertIn("page-locked", other.stdout)
        for part in ("  memory ", "persistent", "configuration", "arena over the stages",
                     "attention_norm |", "predicted"):
            self.assertIn(part, done.stdout)

    def test_json(self):
        plan = self.plan("--budget", "64MiB", "--compute-capability", "86", "--link-rate", "25e9",
                         "--context", "600", "--chunk", "100", "--experts", "stream")
        self.assertTrue(plan["feasible"])
        self.assertEqual(plan["chunk_tokens"], 100)
        self.assertGreater(plan["ring_bytes"], 0)
        self.assertEqual([band["rows"] for band in plan["bands"]], [16, 64, 100])
        self.assertEqual(plan["paths"], plan["bands"][-1]["paths"])
        device = sorted((b["offset"], b["offset"] + b["bytes"]) for b in plan["persistent"])
        for (_, end), (begin, _) in zip(device, device[1:]):
            self.assertLessEqual(end, begin)
        for configuration in plan["configurations"]:
            for b in configuration["buffers"]:
                self.assertGreaterEqual(b["offset"], device[-1][1])
                self.assertLessEqual(b["offset"] + b["bytes"], plan["device_bytes"])
                self.assertLessEqual(b["first_stage"], b["last_stage"])
                self.assertLess(b["last_stage"], len(plan["stages"]))
                self.assertGreater(b["row_capacity"], 0)
        self.assertEqual(sorted({layer for c in plan["configurations"] for layer in c["layers"]}),
                         list(range(len(plan["paths"]))))
        self.assertGreater(plan["predicted_prompt_ns"], 0)
        decode = plan["decode"]
        self.assertEqual(decode["rows"], 16)
        self.assertEqual(sum(c["layer_count"] for c in decode["configurations"]),
                         len(plan["paths"]))
        for b in decode["persistent"] + [b for c in decode["configurations"] for b in c["buffers"]]:
            limit = "session_bytes" if b["region"] == "session" else None
            self.assertLessEqual(b["offset"] + b["bytes"],
                                 plan[limit] if limit else decode["host_bytes"])

    def test_infeasible(self):
        plan = self.plan("--budget", "10K", code=1)
        self.assertIn("memory: at least", plan["reason"])
        self.assertNotIn("device memory", plan["reason"])
        self.assertFalse(plan["feasible"])
        self.assertIn("more than the budget of 10.0 KiB (10240 bytes)", plan["reason"])
        short = re.search(r"at least ([0-9.]+ [KM]iB) \(%d bytes\) are" % plan["needed_bytes"],
                          plan["reason"])
        self.plan("--budget", short.group(1))
        self.assertIn("; what would fit: a budget of " + short.group(1) + ", but no shorter context",
                      plan["reason"])
        longer = self.plan("--budget", short.group(1), "--context", "100000", code=1)
        self.assertIn(", or a context of %d tokens" % longer["context_tokens"], longer["reason"])
        self.plan("--budget", short.group(1), "--context", str(longer["context_tokens"]))
        self.plan("--budget", str(plan["needed_bytes"]))
        self.plan("--budget", str(plan["needed_bytes"] - 1), code=1)

    def test_paths(self):
        plan = self.plan("--path", "fp16,1:direct", "--chunk", "8")
        self.assertEqual(plan["paths"][:2], ["fp16", "direct"])
        self.assertEqual(set(plan["paths"][2:]) - {"fp16"}, set())
        done = run("plan", PACK, "--path", "fast")
        self.assertEqual(done.returncode, 1)
        self.assertIn('"fast" is no path', done.stderr)

    def test_device_facts(self):
        with tempfile.TemporaryDirectory() as folder:
            facts = pathlib.Path(folder) / "facts"
            facts.write_text("# a card\ncompute_capability = 86\nmemory_bytes = 33554432\n\n")
            plan = self.plan("--device-facts", str(facts))
            self.assertEqual(plan["device_budget_bytes"], 33554432)
            self.assertEqual(plan["alignment_bytes"], 256)
            facts.write_text("speed = 3\n")
            done = run("plan", PACK, "--device-facts", str(facts))
            self.assertEqual(done.returncode, 1)
            self.assertIn("facts:1: not a device fact: speed = 3", done.stderr)
            done = run("plan", PACK, "--device-facts", folder)
            self.assertEqual(done.returncode, 1)
            self.assertIn(folder + ": cannot be read", done.stderr)

    def test_save_and_run(self):
        with tempfile.TemporaryDirectory() as folder:
            saved = str(pathlib.Path(folder) / "plan")
            self.plan("--context", "100", "--chunk", "7", "--save", saved)
            first = run("prefill", PACK, "--random", "50", "--plan", saved, "--json")
            self.assertEqual(first.returncode, 0, first.stderr)
            self.assertEqual(json.loads(first.stdout)["result"]["chunk_count"], 8)

    def test_compute_capabilities(self):
        for spelled in ("86", "8.6"):
            self.assertEqual(self.plan("--compute-capability", spelled)["alignment_bytes"], 256)
        done = run("plan", PACK, "--compute-capability", "70")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("7.0 (70): 8.0 (80) and later are supported; 0 is the CPU", done.stderr)
        with tempfile.TemporaryDirectory() as folder:
            facts = pathlib.Path(folder) / "facts"
            facts.write_text("compute_capability = 86\n")
            self.assertEqual(self.plan("--device-facts", str(facts), "--compute-capability", "0")
                             ["alignment_bytes"], self.plan()["alignment_bytes"])

    def test_costs(self):
        with tempfile.TemporaryDirectory() as folder:
            costs = pathlib.Path(folder) / "costs"
            done = run("bench", "--tune", str(costs))
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual(done.stdout, f"the costs of cpu were written to {costs}\n")
            self.assertTrue(costs.read_text().startswith("strata costs 1\ncompute_capability 0\n"))
            self.plan("--costs", str(costs))
            costs.write_text("strata costs 1\ncompute_capability 90\nfused * 900000000 1\n"
                             "mmq * 1 1\nfp16 * 1 1\n")
            chosen = self.plan("--costs", str(costs), "--compute-capability", "90")
            if pathlib.Path(PACK).name == "strata-chapters.gguf":
                self.assertEqual(set(chosen["paths"]), {"fused"})
            chosen = self.plan("--compute-capability", "90")
            self.assertEqual(set(chosen["paths"]), {"fp16"})

    def test_faulty_costs(self):
        with tempfile.TemporaryDirectory() as folder:
            costs = pathlib.Path(folder) / "costs"
            costs.write_text("strata costs 1\ncompute_capability 90\n")
            done = run("plan", PACK, "--costs", str(costs))
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"{costs}: they are of compute capability 90", done.stderr)
            costs.write_text("strata costs 1\ncompute_capability 0\n\nfused * fast 1\n")
            for command in (["plan"], ["prefill", "--random", "3"], ["bench", "--prompts", "3"]):
                done = run(command[0], PACK, *command[1:], "--costs", str(costs), "--json")
                self.assertEqual(done.returncode, 1)
                self.assertIn(f": {costs}: line 4 is not a path", done.stderr)
                self.assertIn(f"{costs}: line 4", json.loads(done.stdout)["error"]["detail"])
            done = run("plan", PACK, "--costs", folder + "/none")
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"--costs: {folder}/none: cannot be read: No such file", done.stderr)

    def test_costs_are_an_answer(self):
        with tempfile.TemporaryDirectory() as folder:
            costs = pathlib.Path(folder) / "costs"
            done = run("bench", "--tune", str(costs), "--json")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            answer = json.loads(done.stdout)
            self.assertEqual((answer["device"], answer["costs"]), ("cpu", costs.read_text()))
            self.assertEqual(run("bench", "--tune", "-").stdout.split("\n")[0], "strata costs 1")
            for other in ([PACK], ["--prompts", "8"], ["--budget", "1G"], ["--cold"]):
                self.assertEqual(run("bench", "--tune", str(costs), *other).returncode, 2)

    def test_usage(self):
        for rate in ("25e9", "25GB", "23GiB"):
            self.plan("--link-rate", rate, "--compute-capability", "90")
        for arguments in (["--budget", "much"], ["--kv", "f64"], ["--link-rate", "fast"],
                          ["--chunk", "0"], ["--compute-capability", "x"],
                          ["--compute-capability", "8."], ["--compute-capability", "8.10"]):
            self.assertEqual(run("plan", PACK, *arguments).returncode, 2)


class PrefillTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def prefill(self, *arguments):
        done = run("prefill", PACK, "--json", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def logits(self, *arguments):
        path = self.folder / "out.f32"
        self.prefill("--logits", str(path), "--kv", "f32", "--no-blas", *arguments)
        values = array.array("f", path.read_bytes())
        if sys.byteorder == "big":
            values.byteswap()
        return values

    def test_text(self):
        done = run("prefill", PACK, "--tokens", TOKENS, "--top", "4")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        lines = done.stdout.splitlines()
        self.assertEqual([line.split()[0] for line in lines[:4]],
                         ["pack", "prompt", "read", "next"])
        self.assertEqual(len(lines), 3 + 4)
        self.assertIn("of memory", lines[2])

    def test_paths(self):
        layers = self.prefill("--tokens", TOKENS, "--path", "fp16,1:direct")["layers"]
        self.assertEqual([layer["path"] for layer in layers[:2]], ["fp16", "direct"])
        self.assertEqual([layer["reason"] for layer in layers[:2]],
                         ["asked for", "asked for this layer"])

    def test_json(self):
        answer = self.prefill("--tokens", TOKENS, "--top", "7")
        self.assertEqual(answer["prompt"]["token_count"], 8)
        self.assertEqual(answer["result"]["read_tokens"], 8)
        self.assertEqual(answer["device"], "cpu")
        chances = [candidate["probability"] for candidate in answer["next"]]
        self.assertEqual(len(chances), 7)
        self.assertEqual(chances, sorted(chances, reverse=True))
        self.assertTrue(0 < sum(chances) <= 1 + 1e-9)

    def test_token_sources_agree(self):
        listed = self.logits("--tokens", TOKENS)
        path = self.folder / "tokens.txt"
        path.write_text(TOKENS.replace(",", "\n") + "\n")
        self.assertEqual(self.logits("--tokens-file", str(path)), listed)
        path.write_bytes(b"3,4\0,5")
        done = run("prefill", PACK, "--tokens-file", str(path))
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn(f"{path}: no text", done.stderr)
        piped = run("prefill", PACK, "--json", "--kv", "f32", "--no-blas", "--tokens-file", "-",
                    input=TOKENS)
        self.assertEqual(json.loads(piped.stdout)["prompt"]["token_count"], 8)

    def test_logits_files(self):
        vocabulary = json.loads(run("inspect", PACK, "--json").stdout)["vocabulary_count"]
        last = self.logits("--tokens", TOKENS)
        every = self.logits("--tokens", TOKENS, "--all-logits")
        self.assertEqual(len(last), vocabulary)
        self.assertEqual(len(every), 8 * vocabulary)
        self.assertEqual(every[-vocabulary:], last)
        self.assertTrue(all(map(math.isfinite, every)))
        best = self.prefill("--tokens", TOKENS, "--kv", "f32", "--no-blas")["next"][0]
        self.assertEqual(last[best["token"]], max(last))

    def test_bits_do_not_depend_on_chunks(self):
        whole = self.logits("--random", "50", "--seed", "3")
        self.assertEqual(self.logits("--random", "50", "--seed", "3", "--chunk", "7"), whole)
        self.assertNotEqual(self.logits("--random", "50", "--seed", "4"), whole)

    def test_chunk_option_is_used(self):
        answer = self.prefill("--random", "50", "--chunk", "7")
        self.assertEqual(answer["result"]["chunk_count"], 8)

    def test_unwritable_logits(self):
        done = run("prefill", PACK, "--tokens", TOKENS, "--logits", "/no/such/folder/out.f32")
        self.assertEqual(done.returncode, 1)
        self.assertIn("/no/such/folder/out.f32", done.stderr)

    def test_progress_on_a_terminal(self):
        terminal, theirs = pty.openpty()
        running = subprocess.Popen([TOOL, "prefill", PACK, "--random", "300", "--chunk", "10"],
                                   stdout=subprocess.PIPE, stderr=theirs)
        os.close(theirs)
        drawn = read_until(terminal, None)
        running.communicate(timeout=60)
        self.assertEqual(running.returncode, 0)
        self.assertIn("of 300 tokens", drawn)
        self.assertTrue(drawn.endswith("\r\x1b[K"))

    def test_an_interrupt_stops_the_prompt(self):
        terminal, theirs = pty.openpty()
        running = subprocess.Popen([TOOL, "prefill", PACK, "--random", "4000", "--context", "4000",
                                    "--chunk", "8", "--threads", "1", "--no-blas"],
                                   stdout=subprocess.PIPE, stderr=theirs)
        os.close(theirs)
        read_until(terminal, "tokens/s")
        running.send_signal(signal.SIGINT)
        messages = read_until(terminal, None)
        out, _ = running.communicate(timeout=60)
        self.assertEqual(running.returncode, 1, messages)
        self.assertEqual(out, b"")
        self.assertIn("STRATA_ERR_CANCELLED", messages)


if __name__ == "__main__":
    unittest.main()
