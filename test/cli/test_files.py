# SPDX-License-Identifier: MIT
"""
Files that the strata tool reads and writes: limits, disks that fail, and options that a file
contradicts.
"""
import json
import os
import pathlib
import resource
import signal
import subprocess
import tempfile
import unittest

from tool import PACK, TOKENS, TOOL, run

PROMPT = ("--tokens", TOKENS)

# Every option that names a file to be written, and the answer's key by which it is known.
WRITTEN = {
    "state": ("prefill", PACK, *PROMPT, "--save-state"),
    "logits": ("prefill", PACK, *PROMPT, "--logits"),
    "profile": ("prefill", PACK, *PROMPT, "--profile"),
    "state after an answer": ("generate", PACK, *PROMPT, "-n", "3", "--ignore-end", "--save-state"),
    "profile after an answer": ("generate", PACK, *PROMPT, "-n", "3", "--ignore-end", "--profile"),
    "profile of a measurement": ("bench", PACK, "--prompts", "4", "--repeat", "1", "--profile"),
    "plan": ("plan", PACK, "--save"),
}
COSTS = ("bench", "--tune")


def with_small_files():
    """Of a child: what makes a file larger than 16 bytes fails, as on a disk that is full."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, 16))


class FolderTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)


class ReadingTest(FolderTest):
    def assert_refused(self, path, limit, *arguments):
        done = run(*arguments, path)
        self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
        self.assertIn(f"{path}: larger than {limit}, the most that is read", done.stderr)

    def test_endless_files(self):
        for limit, *arguments in (
                ("1.0 MiB", "plan", PACK, "--costs"),
                ("1.0 MiB", "plan", PACK, "--device-facts"),
                ("256.0 MiB", "generate", PACK, "--text-file")):
            self.assert_refused("/dev/zero", limit, *arguments)
        for arguments in (("plan", PACK, "--plan"), ("inspect",), ("generate", PACK, *PROMPT,
                                                                  "--state")):
            self.assertNotEqual(run(*arguments, "/dev/zero").returncode, 0)

    def test_huge_files(self):
        huge = self.folder / "huge"
        with open(huge, "wb") as file:
            file.truncate(1 << 40)
        for limit, *arguments in (
                ("256.0 MiB", "generate", PACK, "--text-file"),
                ("256.0 MiB", "prefill", PACK, "--tokens-file"),
                ("256.0 MiB", "tokenize", PACK, "--file"),
                ("64.0 MiB", "prefill", PACK, *PROMPT, "--profile"),
                ("1.0 MiB", "bench", PACK, "--prompts", "3", "--costs")):
            self.assert_refused(str(huge), limit, *arguments)

    def test_a_profile_outlives_a_session_that_counts_none(self):
        path = self.folder / "profile"
        self.assertEqual(run(*WRITTEN["profile"], str(path)).returncode, 0)
        path.write_bytes(path.read_bytes()[:-8] + b"\1" * 8)
        before = path.read_bytes()
        self.assertEqual(run(*WRITTEN["profile"], str(path)).returncode, 0)
        self.assertEqual(path.read_bytes(), before)

    def test_what_is_no_text(self):
        path = self.folder / "file"
        path.write_bytes(b"3\0")
        for arguments in (("plan", PACK, "--costs"), ("plan", PACK, "--device-facts"),
                          ("prefill", PACK, "--tokens-file")):
            done = run(*arguments, str(path))
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn(f"{path}: no text", done.stderr)

    def test_a_file_at_fault_is_named(self):
        path = self.folder / "file"
        path.write_bytes(b"nothing of that kind")
        for arguments in ((*WRITTEN["profile"], path), (*WRITTEN["profile after an answer"], path),
                          ("prefill", PACK, *PROMPT, "--plan", path),
                          ("prefill", PACK, *PROMPT, "--state", path)):
            done = run(*arguments)
            self.assertEqual((done.returncode, done.stdout), (1, ""), arguments)
            self.assertIn(f"{path}: ", done.stderr)


class WritingTest(FolderTest):
    def test_written_whole(self):
        for name, arguments in [*WRITTEN.items(), ("costs", COSTS)]:
            path = self.folder / name
            done = run(*arguments, str(path))
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertGreater(path.stat().st_size, 16, name)
        self.assertEqual(len(list(self.folder.iterdir())), len(WRITTEN) + 1)

    def test_a_link_and_its_mode_stay(self):
        real, link = self.folder / "real", self.folder / "link"
        real.write_bytes(b"")
        real.chmod(0o640)
        link.symlink_to("real")
        self.assertEqual(run(*WRITTEN["logits"], str(link)).returncode, 0)
        self.assertTrue(link.is_symlink())
        self.assertGreater(real.stat().st_size, 16)
        self.assertEqual(real.stat().st_mode & 0o777, 0o640)

    def test_what_cannot_be_is_told_before_work(self):
        for arguments in [*WRITTEN.values(), COSTS]:
            for path in (self.folder / "none" / "file", self.folder):
                done = run(*arguments, str(path))
                self.assertEqual((done.returncode, done.stdout), (1, ""), arguments)
                self.assertIn(f"{path}: cannot ", done.stderr)

    @unittest.skipUnless(os.path.exists("/dev/full"), "no /dev/full")
    def test_an_answer_outlives_a_disk_that_is_full(self):
        for name, arguments in WRITTEN.items():
            if "profile" in name:  # which would be read first
                continue
            self.assert_told(arguments, "/dev/full", "No space left on device")
        self.assert_told(COSTS, "/dev/full", "No space left on device")

    def test_a_file_that_failed_is_as_it_was(self):
        for arguments in [*WRITTEN.values(), COSTS]:
            path = self.folder / "file"
            if "--profile" not in arguments:
                path.write_bytes(b"before")
            self.assert_told(arguments, path, "File too large", preexec_fn=with_small_files)
            if "--profile" not in arguments:
                self.assertEqual(path.read_bytes(), b"before")
                path.unlink()
            self.assertEqual(list(self.folder.iterdir()), [])

    def test_what_was_measured_outlives_what_was_not(self):
        for arguments, row, key, first, status in (
                # Behind the second prompt there is no room to decode.
                (("bench", PACK, "--prompts", "8,30", "--decode", "5", "--context", "30"),
                 "\n       8 ", "prompts", {"tokens": 8}, "STRATA_ERR_CAPACITY"),
                (("compare", PACK, "--random", "9", "--a", "kv=q8_0", "--a", "path=none"),
                 "\nkv=q8_0 ", "comparisons", {"setting": "kv=q8_0"},
                 "STRATA_ERR_INVALID_ARGUMENT")):
            done = run(*arguments)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertEqual(done.stdout.count(row), 1)
            self.assertIn(status, done.stderr)
            done = run(*arguments, "--json")
            self.assertEqual(done.returncode, 1)
            answer = json.loads(done.stdout)
            self.assertEqual(answer["error"]["status"], status)
            self.assertEqual(len(answer[key]), 1)
            self.assertEqual(answer[key][0], {**answer[key][0], **first})

    def assert_told(self, arguments, path, reason, **options):
        done = subprocess.run([TOOL, *arguments, str(path)], capture_output=True, text=True,
                              timeout=120, check=False, **options)
        self.assertEqual(done.returncode, 1, arguments)
        self.assertIn(str(path), done.stderr)
        self.assertIn(reason, done.stderr)
        self.assertNotEqual(done.stdout, "")
        done = subprocess.run([TOOL, *arguments, str(path), "--json"], capture_output=True,
                              text=True, timeout=120, check=False, **options)
        self.assertEqual(done.returncode, 1, arguments)
        answer = json.loads(done.stdout)
        self.assertGreater(len(answer), 2)
        self.assertEqual(answer["error"]["status"], "STRATA_ERR_IO")
        self.assertIn(reason, answer["error"]["what"] + answer["error"]["detail"])


class StateTest(FolderTest):
    def save(self, kv):
        path = str(self.folder / kv)
        done = run("prefill", PACK, *PROMPT, "--kv", kv, "--save-state", path)
        self.assertEqual(done.returncode, 0, done.stderr)
        return path

    def test_the_format_that_was_asked_for(self):
        saved = self.save("q8_0")
        for command in ("prefill", "generate"):
            for kv in ("f16", "f32"):
                done = run(command, PACK, "--tokens", "3", "--state", saved, "--kv", kv)
                self.assertEqual((done.returncode, done.stdout), (1, ""))
                self.assertIn(f"--kv {kv}: the saved sequence {saved} has its KV cache in q8_0",
                              done.stderr)
            for options in ([], ["--kv", "q8_0"]):
                done = run(command, PACK, "--tokens", "3", "--state", saved, *options)
                self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_context_that_is_too_short(self):
        saved = self.save("f16")
        for context in ("7", "8"):
            done = run("prefill", PACK, "--tokens", "3", "--state", saved, "--context", context)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn(f"the context is {context}", done.stderr)

    def test_a_plan_of_another_format(self):
        saved, plan = self.save("q8_0"), str(self.folder / "plan")
        self.assertEqual(run("plan", PACK, "--save", plan).returncode, 0)
        done = run("prefill", PACK, "--tokens", "3", "--state", saved, "--plan", plan)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn(f"{saved}: the saved sequence has its KV cache in q8_0, the session in f16",
                      done.stderr)


if __name__ == "__main__":
    unittest.main()
