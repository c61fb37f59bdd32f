# SPDX-License-Identifier: MIT
"""Text that a session writes: token by token, or in pieces of text."""
from __future__ import annotations

import codecs
import operator
from array import array
from typing import TYPE_CHECKING, Iterator, Optional, Sequence, Union

from .sampling import Sampler

if TYPE_CHECKING:
    from .pack import Pack
    from .results import Progress
    from .session import ProgressFunction, Session

_END_KEYS = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
             "tokenizer.ggml.eom_token_id")


def end_tokens(pack: "Pack") -> frozenset[int]:
    """The tokens by which a model ends its text."""
    metadata = pack.metadata
    return frozenset(int(str(metadata[key])) for key in _END_KEYS if key in metadata)


class Tokens(Iterator[int]):
    """
    The tokens of a generation. The prompt is read when the first one is asked for; a token is
    decoded when the next one is, so that the sequence holds all but the last. Asked again after a
    call that failed or was cancelled, it goes on where it was: nothing is read twice.

    prompt      the prompt's tokens
    tokens      what was generated so far
    stopped_by  None while it goes on; "count", "end" (the model ended the text), "context" (it is
                full), "text" (one to stop at came)
    """

    def __init__(self, session: "Session", prompt: Sequence[int], *, max_tokens: int,
                 sampler: Sampler, ends: frozenset[int], sequence: int,
                 progress: "Optional[ProgressFunction]") -> None:
        if operator.index(max_tokens) < 0:
            raise ValueError(f"max_tokens is {max_tokens}")
        self.prompt = list(prompt)
        self.tokens: list[int] = []
        self.stopped_by: Optional[str] = None
        self._before = list(prompt)
        self._session = session
        self._most = max_tokens
        self._sampler = sampler
        self._ends = ends
        self._sequence = sequence
        self._progress = progress
        self._start: Optional[int] = None  # the sequence's length before the prompt
        self._logits: "Optional[array[float]]" = None  # not chosen from yet

    def _read_prompt(self) -> "array[float]":
        length = self._session.length(self._sequence)
        if self._start is None:
            self._start = length
        read = max(0, min(length - self._start, len(self.prompt) - 1))
        self._session.truncate(self._start + read, self._sequence)
        return self._session.prefill(self.prompt[read:], sequence=self._sequence,
                                     progress=self._progress).logits

    def _read(self) -> "array[float]":
        if self.tokens:
            return self._session.decode(self.tokens[-1:], sequence=self._sequence).logits
        return self._read_prompt()

    def _is_full(self) -> bool:
        session = self._session
        return bool(self.tokens) and self._logits is None and session.length(self._sequence) >= session.context

    def stop(self, reason: str) -> None:
        """Ends the generation."""
        self.stopped_by = self.stopped_by or reason

    def __next__(self) -> int:
        if self.stopped_by is None and len(self.tokens) >= self._most:
            self.stop("count")
        if self.stopped_by is None and self._is_full():
            self.stop("context")
        if self.stopped_by is not None:
            raise StopIteration
        if self._logits is None:
            self._logits = self._read()
        token = self._sampler.choose(self._logits, self._before)
        self._logits = None
        if token in self._ends:
            self.stop("end")
            raise StopIteration
        self.tokens.append(token)
        self._before.append(token)
        return token


class Generation(Iterator[str]):
    """
    A generation in pieces of text, whole characters each; see Tokens for the rest.

    text        all pieces so far
    """

    def __init__(self, tokens: Tokens, pack: "Pack", stop: Union[str, Sequence[str]]) -> None:
        if isinstance(stop, str):
            stop = (stop,)
        if not all(stop):
            raise ValueError("a text to stop at is empty")
        self.text = ""
        self._tokens = tokens
        self._tokenizer = pack.tokenizer
        self._stops = tuple(stop)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""

    @property
    def prompt(self) -> list[int]:
        """The prompt's tokens."""
        return self._tokens.prompt

    @property
    def tokens(self) -> list[int]:
        """The tokens generated so far."""
        return self._tokens.tokens

    @property
    def stopped_by(self) -> Optional[str]:
        """Why it ended, see Tokens."""
        return self._tokens.stopped_by

    def _hand_on(self) -> str:
        """What is held and cannot belong to a text to stop at."""
        places = [place for place in map(self._held.find, self._stops) if place >= 0]
        if places:
            self._tokens.stop("text")
            piece, self._held = self._held[:min(places)], ""
            return piece
        keep = max((part for stop in self._stops for part in range(1, len(stop))
                    if self._held.endswith(stop[:part])), default=0)
        end = len(self._held) - keep
        piece, self._held = self._held[:end], self._held[end:]
        return piece

    def __next__(self) -> str:
        piece = ""
        while not piece:
            if self._tokens.stopped_by == "text":
                raise StopIteration
            try:
                data = self._tokenizer.decode([next(self._tokens)], continued=True)
                self._held += self._decoder.decode(data)
                piece = self._hand_on()
            except StopIteration:
                self._held += self._decoder.decode(b"", True)
                piece, self._held = self._held, ""
                if not piece:
                    raise
        self.text += piece
        return piece
