# SPDX-License-Identifier: MIT
"""
What the strata tool says and answers when something is wrong, and when a pack's texts are hostile.
"""
import json
import os
import pathlib
import struct
import subprocess
import tempfile
import unittest

from tool import PACK, TOKENS, TOOL, run


class FailureTest(unittest.TestCase):
    def assert_failure(self, status, text, *arguments):
        done = run(*arguments)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertIn(text, done.stderr)
        self.assertIn(status, done.stderr)
        done = run(*arguments, "--json")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(json.loads(done.stdout)["error"]["status"], status)

    def test_no_such_file(self):
        self.assert_failure("STRATA_ERR_IO", "/no/such.gguf", "inspect", "/no/such.gguf")

    def test_no_pack(self):
        self.assert_failure("STRATA_ERR_FORMAT", "cannot open the pack", "inspect", __file__)

    def test_no_such_device(self):
        self.assert_failure("STRATA_ERR_NO_DEVICE", "cuda:77", "prefill", PACK, "--tokens", TOKENS,
                            "--device", "cuda:77")

    def test_token_beyond_the_vocabulary(self):
        self.assert_failure("STRATA_ERR_INVALID_ARGUMENT", "2000000000", "prefill", PACK,
                            "--tokens", "3,2000000000")

    def test_what_the_tool_itself_refuses(self):
        for status, text, *arguments in [
                ("STRATA_ERR_INVALID_ARGUMENT", "--tokens: not a list of token ids: no id at byte "
                 "2, where it has \"x\"", "generate", PACK, "--tokens", "3,x"),
                ("STRATA_ERR_INVALID_ARGUMENT", "an id is missing at the end", "prefill", PACK,
                 "--tokens", "3,"),
                ("STRATA_ERR_INVALID_ARGUMENT", "where it has \",2\"", "prefill", PACK, "--tokens",
                 "1,,2"),
                ("STRATA_ERR_IO", "/no/such: cannot be read: No such file or directory", "prefill",
                 PACK, "--tokens-file", "/no/such"),
                ("STRATA_ERR_IO", "/no/such: cannot be read: No such file", "tokenize", PACK,
                 "--file", "/no/such"),
                ("STRATA_ERR_IO", "/: cannot be read: Is a directory", "tokenize", PACK,
                 "--text-file", "/"),
                ("STRATA_ERR_IO", "/: cannot be written: Is a directory", "bench", PACK,
                 "--prompts", "4", "--profile", "/"),
                ("STRATA_ERR_IO", "/no/such: cannot be read: No such file", "plan", PACK,
                 "--device-facts", "/no/such"),
                ("STRATA_ERR_INVALID_ARGUMENT", "is no setting", "compare", PACK, "--tokens", "3",
                 "--a", "path"),
                ("STRATA_ERR_INVALID_ARGUMENT", "--lengths: not", "compare", PACK, "--tokens", "3",
                 "--lengths", "9")]:
            done = run(*arguments)
            self.assertEqual((done.returncode, done.stdout), (1, ""), arguments)
            self.assertIn(text, done.stderr)
            done = run(*arguments, "--json")
            self.assertEqual(done.returncode, 1)
            error = json.loads(done.stdout)["error"]
            self.assertEqual(error["status"], status)
            self.assertIn(text, error["what"])

    def test_standard_input_has_a_name(self):
        done = run("prefill", PACK, "--tokens-file", "-", input="3,")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("standard input: not a list of token ids", done.stderr)

    def test_a_choice_names_what_may_be_chosen(self):
        done = run("prefill", PACK, "--tokens", "3", "--kv", "q4")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn('--kv: "q4" is none of f16, q8_0, f32', done.stderr)

    def test_comparison_tells_what_it_could_not_do(self):
        self.assert_failure("STRATA_ERR_INVALID_ARGUMENT", "cannot make a session", "compare",
                            PACK, "--tokens", "3", "--a", "path=none")

    def test_prompt_longer_than_the_context(self):
        self.assert_failure("STRATA_ERR_INVALID_ARGUMENT", "prompt tokens within the context is 9,",
                            "prefill", PACK,
                            "--random", "9", "--context", "8")

    def test_tokens_that_are_none(self):
        done = run("prefill", PACK, "--tokens", "1,two")
        self.assertEqual(done.returncode, 1)
        self.assertIn("not a list of token ids", done.stderr)

    def test_a_full_disk_is_a_failure(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full")
        with open("/dev/full", "w") as full:
            done = subprocess.run([TOOL, "inspect", PACK], stdout=full, stderr=subprocess.PIPE,
                                  text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot write", done.stderr)


class ExampleTest(unittest.TestCase):
    """The programs that lie beside the tool."""

    def test_usage(self):
        folder = pathlib.Path(TOOL).parent
        for name in ("borrowed_memory", "cancel", "first_logits", "generate", "share_prefix"):
            done = subprocess.run([folder / name], capture_output=True, text=True, timeout=60,
                                  check=False)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(f"usage: {name} PACK", done.stderr)
            done = subprocess.run([folder / name, "/no/such.gguf"], capture_output=True, text=True,
                                  timeout=60, check=False)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn("/no/such.gguf: cannot open", done.stderr)


class HostileTextTest(unittest.TestCase):
    """What a file says is shown, and steers no terminal."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.pack = pathlib.Path(folder.name) / "hostile.gguf"
        evil = b"a\x1b[2J\xc2\x9b1m\x07\xff\xc3\xa9"
        self.shown = "a\\x1b[2J\\xc2\\x9b1m\\x07\\xff\u00e9"
        entries = {b"general.architecture": b"llama", b"general.name": evil,
                   b"tokenizer.ggml.model": evil}
        data = b"GGUF" + struct.pack("<IQQ", 3, 1, len(entries) + 1)
        for key, value in entries.items():
            data += self.text(key) + struct.pack("<I", 8) + self.text(value)
        data += self.text(b"tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 1)
        data += self.text(b"a") + self.text(b"t") + struct.pack("<IQIQ", 1, 8, 0, 0)
        self.pack.write_bytes(data + bytes(-len(data) % 32 + 32))

    @staticmethod
    def text(data):
        return struct.pack("<Q", len(data)) + data

    def test_on_standard_output(self):
        done = run("inspect", str(self.pack), encoding="utf-8")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("llama, " + self.shown + "\n", done.stdout)
        self.assertNotIn("\x1b", done.stdout)

    def test_in_messages(self):
        done = run("inspect", "/no/\x1b[31msuch.gguf", encoding="utf-8")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("/no/\\x1b[31msuch.gguf", done.stderr)
        done = run("tokenize", str(self.pack), "--text", "a", encoding="utf-8")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("tokenizer.ggml.model", done.stderr)
        self.assertNotIn("\x1b", done.stderr)


if __name__ == "__main__":
    unittest.main()
