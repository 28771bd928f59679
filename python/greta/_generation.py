"""Texts as they come: pieces, answers, and what iterates over them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from ._errors import CanceledError, GretaError, UsageError
from ._process import Process, wait


class Piece(str):
    """What a token adds to an answer: text, empty where a character is not whole yet."""

    token: int | None  #: its id; None for text that was held back until the end
    prompt: int  #: index of the prompt
    choice: int  #: which of the prompt's answers
    logprob: float | None  #: natural logarithm of the token's probability, where asked for
    top: list[tuple[int, float]]  #: the most likely tokens with theirs, the best first

    @classmethod
    def _of(cls, p: dict[str, Any]) -> Piece:
        self = cls(p["s"])
        self.token = p["t"] if p["t"] >= 0 else None
        self.prompt, self.choice, self.logprob = p["p"], p["c"], p.get("lp")
        self.top = [(int(i), float(v)) for i, v in p.get("top", [])]
        return self


@dataclass
class Answer:
    """One answer to one prompt."""

    prompt: int  #: index of the prompt
    choice: int = 0  #: which of its answers
    text: str = ""
    tokens: list[int] = field(default_factory=list)  #: the ids, an end token included
    stop: str = ""  #: max, end (an end token), stop (a stop text), context (it is full), "" (cancelled)
    stop_text: str = ""  #: the stop text that ended it
    prompt_tokens: list[int] = field(default_factory=list)  #: the prompt's ids
    cached_tokens: int = 0  #: of them, those that were known
    logprobs: list[float] = field(default_factory=list)  #: of each token, where asked for
    top: list[list[tuple[int, float]]] = field(default_factory=list)
    queue_ms: float = 0.0  #: until its first step
    prefill_ms: float = 0.0  #: until its first token
    decode_ms: float = 0.0  #: from there to the last

    def __str__(self) -> str:
        return self.text


_MOST = 1 << 20  # answers that one call may ask for: more than any model has room for


class _Answers:
    """The answers of a request in the making."""

    def __init__(self, prompts: int, choices: int, single: bool) -> None:
        if prompts * choices > _MOST:
            raise UsageError(f"num_return_sequences is {choices}, of {prompts} prompts: at most {_MOST} answers in all")
        self.single = single
        self.all = [[Answer(p, c) for c in range(choices)] for p in range(prompts)]
        self.done = False

    def take(self, message: dict[str, Any]) -> list[Piece]:
        """Adds a message and gives its pieces."""
        if "event" in message:
            pieces = [Piece._of(p) for p in message["event"]]
            for p in pieces:
                a = self.all[p.prompt][p.choice]
                a.text += p
                if p.token is not None:
                    a.tokens.append(p.token)
                if p.logprob is not None:
                    a.logprobs.append(p.logprob)
                    a.top.append(p.top)
            return pieces
        self.done = True
        for e in message["ok"]["answers"]:
            a = self.all[e["prompt"]][e["choice"]]
            a.stop, a.stop_text, a.cached_tokens = e["stop"], e.get("stop_text", ""), e["cached"]
            a.queue_ms, a.prefill_ms, a.decode_ms = e["queue_ms"], e["prefill_ms"], e["decode_ms"]
            if e.get("prompt_tokens"):
                for c in self.all[e["prompt"]]:
                    c.prompt_tokens = e["prompt_tokens"]
        return []

    def list(self) -> list[Answer]:
        return [a for choices in self.all for a in choices]


class Generation:
    """A generation under way. It iterates over pieces of text; leaving the loop cancels it.

    `results()` waits for all answers, `text` for the one of a single prompt.
    """

    def __init__(self, process: Process, args: dict[str, Any], single: bool, keep: object = None) -> None:
        self._process, self._keep = process, keep  # keep: the model, whose end would be the generation's
        self._answers = _Answers(len(args["prompts"]), max(1, args.get("choices", 1)), single)
        self._queue: SimpleQueue[dict[str, Any] | GretaError] = SimpleQueue()
        self._error: GretaError | None = None
        self._canceled = False
        self._taking = threading.Lock()
        queue = self._queue  # so that a Generation that nobody holds is collected, and cancelled
        self._request = process.number()
        try:
            process.begin(self._request, "generate", args, lambda message, _: queue.put(message))
        except BaseException:  # an interrupt, behind which it may be under way
            self.cancel()
            raise

    def __iter__(self) -> Iterator[Piece]:
        try:
            while not self._answers.done:
                yield from self._next()
        finally:
            if not self._answers.done:
                self.cancel()

    def _next(self) -> list[Piece]:
        with self._taking:  # several threads may wait: each message counts before the next is taken
            if self._error is not None:
                raise self._error
            if self._answers.done:
                return []
            if self._canceled:
                raise CanceledError("the generation was cancelled")
            message = wait(self._queue)
            if isinstance(message, GretaError):
                self._error = message
                raise message
            return self._answers.take(message)

    def results(self) -> list[Answer]:
        """Waits for all answers: of the first prompt first, all of its choices, then of the next."""
        try:
            while not self._answers.done:
                self._next()
        except BaseException:
            self.cancel()
            raise
        return self._answers.list()

    @property
    def partial(self) -> list[Answer]:
        """The answers as far as they were read: also those of a generation that was cancelled."""
        return self._answers.list()

    @property
    def text(self) -> str:
        """Waits for the text of a single prompt's first answer."""
        if len(self._answers.all) != 1:
            raise UsageError(f"there are {len(self._answers.all)} prompts: results() gives their answers")
        return self.results()[0].text

    @property
    def texts(self) -> list[str]:
        """Waits for the texts of all answers."""
        return [a.text for a in self.results()]

    def cancel(self) -> None:
        """Ends the generation where it is. The model is free for others at once."""
        if not self._answers.done and not self._canceled and self._error is None:
            self._canceled = True
            self._process.abandon(self._request)
            self._queue.put(CanceledError("the generation was cancelled"))  # for threads that wait

    def __enter__(self) -> Generation:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()

    def __del__(self) -> None:
        if getattr(self, "_request", None) is not None and not self._answers.done and not self._canceled:
            self._process.abandon_later(self._request)


class _Inbox:
    """Messages on their way to the event loop of the task that waits first; until then they are kept."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[dict[str, Any] | GretaError] = asyncio.Queue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._early: list[dict[str, Any] | GretaError] = []
        self._lock = threading.Lock()

    def put(self, message: dict[str, Any] | GretaError) -> None:
        """Any thread may call it."""
        with self._lock:
            if self._loop is None:
                self._early.append(message)
                return
        try:
            self._loop.call_soon_threadsafe(self.queue.put_nowait, message)
        except RuntimeError:  # the loop has ended
            pass

    def bind(self) -> None:
        """The loop that runs is the one, or else was."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._loop is None:
                self._loop = loop
                for message in self._early:
                    self.queue.put_nowait(message)
                self._early.clear()
        if self._loop is not loop:
            raise UsageError("this generation belongs to another event loop: begin one in each")


class AsyncGeneration:
    """A generation for asyncio: `async for piece in generation`, `await generation.results()`.

    Cancelling the task that waits for it cancels it. It is under way before any loop runs.
    """

    def __init__(self, process: Process, args: dict[str, Any], single: bool, keep: object = None) -> None:
        self._process, self._keep = process, keep  # keep: the model, whose end would be the generation's
        self._answers = _Answers(len(args["prompts"]), max(1, args.get("choices", 1)), single)
        self._inbox = inbox = _Inbox()
        self._error: GretaError | None = None
        self._canceled = False
        self._request = process.number()
        try:
            process.begin(self._request, "generate", args, lambda message, _: inbox.put(message))
        except BaseException:  # an interrupt, behind which it may be under way
            self.cancel()
            raise

    async def __aiter__(self) -> AsyncIterator[Piece]:
        try:
            while not self._answers.done:
                for piece in await self._next():
                    yield piece
        finally:
            self.cancel()

    async def _next(self) -> list[Piece]:
        if self._error is not None:
            raise self._error
        if self._canceled:
            raise CanceledError("the generation was cancelled")
        self._inbox.bind()
        message = await self._inbox.queue.get()
        if isinstance(message, GretaError):
            self._error = message = self._error or message
        if _last(message):
            self._inbox.queue.put_nowait(message)  # for other tasks that wait
        if isinstance(message, GretaError):
            raise message
        return self._answers.take(message)

    async def results(self) -> list[Answer]:
        """Waits for all answers: of the first prompt first, all of its choices, then of the next."""
        try:
            while not self._answers.done:
                await self._next()
        except BaseException:
            self.cancel()
            raise
        return self._answers.list()

    async def text(self) -> str:
        """Waits for the text of a single prompt's first answer."""
        if len(self._answers.all) != 1:
            raise UsageError(f"there are {len(self._answers.all)} prompts: results() gives their answers")
        return (await self.results())[0].text

    @property
    def partial(self) -> list[Answer]:
        """The answers as far as they were read: also those of a generation that was cancelled."""
        return self._answers.list()

    def cancel(self) -> None:
        """Ends the generation where it is. Any thread may call it."""
        if not self._answers.done and not self._canceled and self._error is None:
            self._canceled = True
            self._process.abandon(self._request)
            self._inbox.put(CanceledError("the generation was cancelled"))  # for tasks that wait

    def __del__(self) -> None:
        if getattr(self, "_request", None) is not None and not self._answers.done and not self._canceled:
            self._process.abandon_later(self._request)


def _last(message: dict[str, Any] | GretaError) -> bool:
    """Whether nothing comes behind a message."""
    return isinstance(message, GretaError) or "event" not in message
