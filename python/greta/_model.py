"""Models: texts, logits, blocks, sessions, tokenizers."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Union

from . import _arguments, _device, _shared
from ._arguments import ids as _ids
from ._errors import UnsupportedError, UsageError
from ._generation import AsyncGeneration, Generation
from ._process import Process, default_process, here

if TYPE_CHECKING:
    from ._shared import Array

#: One text, or the ids of one.
Prompt = Union[str, Sequence[int]]


def load(
    path: str | os.PathLike[str],
    *,
    backend: str | None = None,
    device: str | int | None = None,
    dtype: str | None = None,
    kv: str | None = None,
    context: int | None = None,
    threads: int | None = None,
    set: Mapping[str, object] | None = None,
    weights: str | os.PathLike[str] | None = None,
    tokenizer: str | os.PathLike[str] | None = None,
    parallel: int | None = None,
    process: Process | None = None,
    **options: object,
) -> Model:
    """Loads a model: a GGUF file, a folder of Hugging Face's, a model file, or a built-in one's name.

    backend: cpu, vulkan, hip; device: which of its devices. dtype: what weight matrices are converted to. kv: type of
    the caches (f16, bf16, f32). context: positions at most. set: parameters of the model file. parallel: answers that
    run at once (8). Further options are the flags of `greta run` with _ for -, such as lora, exact, draft="ngram".

    Raises UsageError for a wrong path or option, DeviceError, OutOfMemoryError.
    """
    path = _arguments.path("path", path, "a path, or a built-in model's name,")
    if process is not None and not isinstance(process, Process):
        raise _arguments.wrong("process", process, "a greta.Process")
    given: dict[str, object] = {
        "backend": backend,
        "device": device,
        "dtype": dtype,
        "kv": kv,
        "context": context,
        "threads": threads,
        "set": set,
        "weights": weights,
        "tokenizer": tokenizer,
        "parallel": parallel,
        **options,
    }
    given = {k: _option(k, v) for k, v in given.items() if v is not None}
    p = process or default_process()
    for name in ("weights", "tokenizer", "lora"):
        if name in given:
            given[name] = here(given[name], p)
    answer, _ = p.call("load", {"path": here(path, p), "options": given})
    return Model(p, answer["model"], answer["info"])


def _option(name: str, value: object) -> object:
    """An option of load as JSON has it. A number may be a text, as a command line has it."""
    if name in ("backend", "dtype", "kv"):
        return _arguments.text(name, value)
    if name in ("weights", "tokenizer"):
        return _arguments.path(name, value)
    if name == "set":
        value = _arguments.mapping(name, value, "a dict of the model file's parameters")
    elif name in ("context", "threads", "parallel") and not isinstance(value, str):
        return _arguments.whole(name, value)
    elif name == "device":
        return value if isinstance(value, str) else str(_arguments.whole(name, value))
    return _arguments.plain(name, value)


@dataclass(frozen=True)
class ModelInfo:
    """What a model says of itself."""

    name: str
    kind: str  #: model, block, or embed: a model of vectors
    source: str  #: path of the weights, or synthetic
    format: str
    backend: str
    device: str
    dtype: str
    kv: str
    context: int  #: positions at most
    vocabulary: int  #: 0 for a block
    width: int  #: of a block's rows or of vectors; 0 for a model
    output: int  #: width of a block's output; 0 for others
    weight_bytes: int
    tokenizer: bool
    chat_template: bool
    bos: int  #: -1: none is put before a text
    ends: tuple[int, ...]


@dataclass(frozen=True)
class CheckReport:
    """What a comparison with the float64 reference found. It is true where nothing differs."""

    ok: bool
    verdict: str  #: self-consistent or inconsistent
    limit: float  #: of the relative L2 error
    worst: float  #: the largest relative L2 error of an operator's result
    diverged: dict[str, Any] | None  #: the first operator beyond the limit
    ops: list[dict[str, Any]] = field(repr=False)  #: every operator's result
    raw: dict[str, Any] = field(repr=False)  #: all of it, as `greta check --json` writes it

    def __bool__(self) -> bool:
        return self.ok


class Tokenizer:
    """A model's tokenizer."""

    def __init__(self, model: Model) -> None:
        self._model = model

    @property
    def vocab_size(self) -> int:
        """The number of tokens."""
        return self._model.info.vocabulary

    @property
    def bos_token_id(self) -> int | None:
        """The begin token that is put before a text; None: none is."""
        return self._model.info.bos if self._model.info.bos >= 0 else None

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """The tokens that end an answer."""
        return self._model.info.ends

    def encode(self, text: str, *, add_special_tokens: bool = True, parse_special: bool = False) -> list[int]:
        """The ids of a text; add_special_tokens: with the begin token, where the model was trained with one.

        parse_special reads control tokens that are written in it, such as <|im_start|>, as tokens.
        """
        _arguments.text("text", text)
        return self.encode_batch([text], add_special_tokens=add_special_tokens, parse_special=parse_special)[0]

    def encode_batch(
        self, texts: Sequence[str], *, add_special_tokens: bool = True, parse_special: bool = False
    ) -> list[list[int]]:
        """The ids of several texts."""
        args = {
            "texts": _arguments.texts("texts", texts),
            "bos": _arguments.flag("add_special_tokens", add_special_tokens),
            "special": _arguments.flag("parse_special", parse_special),
        }
        result: list[list[int]] = self._model._call("tokenize", args)[0]["tokens"]
        return result

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of ids, without control tokens."""
        return self.decode_batch([_ids("tokens", tokens)])[0]

    def decode_batch(self, batch: Sequence[Sequence[int]]) -> list[str]:
        """The texts of several lists of ids."""
        args = {"tokens": [_ids(f"batch[{i}]", t) for i, t in enumerate(_lists("batch", batch))]}
        result: list[str] = self._model._call("detokenize", args)[0]["texts"]
        return result

    def convert_ids_to_tokens(self, tokens: Sequence[int]) -> list[str]:
        """What each token looks like alone, control tokens included."""
        result: list[list[str]] = self._model._call("detokenize", {"tokens": [_ids("tokens", tokens)], "pieces": True})[
            0
        ]["pieces"]
        return result[0]

    def apply_chat_template(
        self, messages: Sequence[Mapping[str, str]], *, continue_final_message: bool = False, **variables: object
    ) -> list[int]:
        """The ids of a conversation, written as the model's chat template says, up to where the answer begins.

        messages: dicts with role and content. variables are further ones of the template's.
        """
        args = {
            "messages": [_message(f"messages[{i}]", m) for i, m in enumerate(_lists("messages", messages))],
            "continue": _arguments.flag("continue_final_message", continue_final_message),
            "variables": variables,
        }
        result: list[int] = self._model._call("chat", args)[0]["tokens"]
        return result


def _lists(name: str, value: Any) -> Sequence[Any]:
    """What is a list of lists or dicts, as one."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise _arguments.wrong(name, value, "a list")
    return value


def _message(name: str, message: object) -> dict[str, str]:
    found = _arguments.mapping(name, message, "a dict with role and content")
    for key in ("role", "content"):
        if key not in found:
            raise UsageError(f"{name} has no {key}: a dict with role and content is expected")
    return {key: _arguments.text(f"{name}[{key!r}]", found[key]) for key in ("role", "content")}


class Session:
    """Positions in caches of one's own, which one goes through step by step."""

    def __init__(self, model: Model, number: int | None = None) -> None:
        self._model = model
        self._own = False
        self._id: int | None = model._call("open-session", {})[0]["session"] if number is None else number
        self._own = number is None
        self.pos = 0  #: how many positions the caches hold

    def _run(self, args: dict[str, Any], payload: Any = b"", keep: object = None) -> Any:
        wire = {"session": self._number(), **args}
        answer, data = self._model._process.call("run-session", wire, payload, keep=keep)
        self.pos = answer["pos"]
        return self._model._received(answer["out"], data) if "out" in answer else None

    def _number(self) -> int:
        self._model._number()
        if self._id is None:
            raise UsageError("the session is closed")
        return self._id

    def _block(self, x: Any, out: Any, args: dict[str, Any]) -> Any:
        if self._model.info.kind != "block":
            raise UsageError(f"{self._model.info.name} takes tokens, not rows")
        if _device.device_of(x) is None:
            if out is not None:
                raise UsageError("out is for rows in memory of a GPU; these lie in the host's")
            wire, payload, keep = _tensor(x)
            result = self._run({"x": wire, **args}, payload)
            del keep
            return result
        info = self._model.info
        if info.backend != "hip":
            raise UnsupportedError(
                f"the tensor lies in memory of a GPU, {info.name} runs on the backend {info.backend}: load it with "
                'backend="hip" on the tensor\'s card, or give a tensor of the host'
            )
        if out is not None and _device.device_of(out) is None:
            raise UsageError("out lies in the host's memory, x in a GPU's: expected is out on the same device")
        lender = self._model._lender
        rows = _device.DeviceTensor(x, "x", lender)
        if out is None:
            if len(rows.shape) != 2:
                raise UsageError(f"x has the shape {rows.shape}, expected is [rows, {info.width}]")
            out = _device.DeviceArray(rows, (rows.shape[0], info.output))
        self._held(rows, _device.DeviceTensor(out, "out", lender, rows), args)
        return out

    def _held(self, rows: _device.DeviceTensor, place: _device.DeviceTensor, args: dict[str, Any]) -> None:
        """Runs a block on rows of a GPU and leaves its output there."""
        self._run({"x": rows.wire, "out": place.wire, **args}, keep=(rows, place))
        rows.named()
        place.named()
        place.written()

    def prefill(self, tokens: Sequence[int], *, all: bool = False) -> Array:
        """Computes tokens behind those that are there; gives the logits [vocabulary] behind the last.

        all: those of every token, [len(tokens), vocabulary].
        """
        out = self._run({"tokens": _ids("tokens", tokens), "all": _arguments.flag("all", all)})
        return out if all else out[0]  # type: ignore[no-any-return]

    def decode(self, token: int) -> Array:
        """Computes one token; gives the logits [vocabulary] behind it."""
        return self.prefill([_arguments.whole("token", token)])

    def block(self, x: Any, *, out: Any = None) -> Any:
        """Runs a block on rows x [n, width] of float32 at the positions that follow; gives its output [n, width].

        x is an array or any tensor with __dlpack__. One of `greta.empty` is read where it lies. One in memory of the
        GPU that the model runs on stays there: the output is a DeviceArray, or is written into `out`, a tensor of the
        same device, which is given back.

        Raises UnsupportedError for a tensor of another device, UsageError for one of a GPU that is not dense float32.
        """
        return self._block(x, out, {})

    def rewind(self, pos: int) -> None:
        """Goes back to a position; what is behind it is forgotten."""
        self.pos = self._model._process.call("rewind", {"session": self._number(), "pos": _arguments.whole("pos", pos)})[0]["pos"]

    def reset(self) -> None:
        """Goes back to the beginning."""
        self.rewind(0)

    def close(self) -> None:
        """Frees the caches."""
        if self._id is not None and self._model._id is not None and self._model._process.alive:
            self._model._process.call("end-session", {"session": self._id})
        self._id = None

    def __del__(self) -> None:
        if getattr(self, "_own", False) and self._id is not None and self._model._id is not None:
            self._model._process.later("end-session", {"session": self._id}, answered=True)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _tensor(x: Any) -> tuple[dict[str, Any], Any, Any]:
    """How a tensor is sent: its description, the payload, and what must live until the answer is there."""
    array = _shared.as_array(x)
    wire: dict[str, Any] = {"type": "f32", "shape": list(array.shape)}
    place = _shared.locate(array)
    if place is None and _shared.SHARING and array.nbytes >= _shared.MINIMUM:
        copy = _shared.empty(array.shape)
        copy[...] = array
        array, place = copy, _shared.locate(copy)
    if place is None:
        return wire, memoryview(array.data).cast("B") if array.size else b"", array
    memory, offset = place
    if offset % 4:
        raise UsageError(f"the tensor begins at byte {offset} of its shared memory: a multiple of 4 is expected")
    wire.update(path=memory.path, offset=offset)
    return wire, b"", (array, memory)


class Model:
    """A loaded model. It may be used by several threads at once; close() frees it, and so does its end in Python."""

    def __init__(self, process: Process, number: int, info: dict[str, Any]) -> None:
        self._process = process
        self._id: int | None = number
        self._lock = threading.Lock()
        self._forward: int | None = None
        self._lender = _device.Lender(process, number)
        self.info = ModelInfo(**{**info, "ends": tuple(info["ends"])})

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return Tokenizer(self)  # no part of the model, which would hold itself by it

    def _call(self, op: str, args: dict[str, Any]) -> tuple[dict[str, Any], memoryview]:
        return self._process.call(op, {"model": self._number(), **args})

    def _number(self) -> int:
        if self._id is None:
            raise UsageError(f"the model {self.info.name} is closed")
        return self._id

    def _received(self, t: dict[str, Any], payload: memoryview) -> Any:
        try:
            return _shared.received(t["shape"], t.get("path", ""), t.get("offset", 0), payload)
        finally:
            if t.get("lease"):
                self._process.tell("release", t["lease"])

    def generate(self, prompts: Prompt | Sequence[Prompt], **options: Any) -> Generation:
        """Continues a text, or a batch of texts at once; gives what iterates over the pieces as they come.

        prompts: a text, or a list of ids, or a list of such. Options, which mean what they mean in Transformers:
        max_new_tokens (256, or what the context has room for; 0: until it is full), min_new_tokens, do_sample,
        temperature, top_k, top_p, min_p, typical_p, repetition_penalty, num_return_sequences, stop_strings.
        Others: seed, frequency_penalty, presence_penalty, logit_bias (id → number), ignore_eos, logprobs (how many of
        the best tokens are told), parse_special, add_special_tokens, adapter, priority; and the answer's form: schema
        (a JSON schema), json, regex, choice (texts), grammar (GBNF).

        Without temperature or do_sample the most likely token is taken. Raises UsageError for what cannot be.
        """
        args, single = self._generation(prompts, options)
        return Generation(self._process, args, single, self)

    def agenerate(self, prompts: Prompt | Sequence[Prompt], **options: Any) -> AsyncGeneration:
        """generate for asyncio: within a running loop, `async for piece in model.agenerate(...)`."""
        args, single = self._generation(prompts, options)
        return AsyncGeneration(self._process, args, single, self)

    def _generation(self, prompts: Any, options: dict[str, Any]) -> tuple[dict[str, Any], bool]:
        if hasattr(prompts, "tolist"):
            prompts = prompts.tolist()
        if isinstance(prompts, bytes) or not isinstance(prompts, Sequence):
            raise _arguments.wrong("prompts", prompts, "a text, a list of token ids or a list of such")
        single = isinstance(prompts, str) or len(prompts) > 0 and hasattr(prompts[0], "__index__")
        wire = []
        for i, p in enumerate([prompts] if single else prompts):
            wire.append({"text": p} if isinstance(p, str) else {"tokens": _ids(f"prompts[{i}]", p)})
        if not wire:
            raise UsageError("prompts: the list is empty")
        args: dict[str, Any] = {"model": self._number(), "prompts": wire}
        args.update(_generate_args(dict(options)))
        return args, single

    def logits(self, tokens: Prompt, *, last: bool = False) -> Array:
        """The logits behind every token of a text: float32 [tokens, vocabulary]; last: of the last alone, [vocabulary].

        Without NumPy a memoryview of that shape. Large ones lie in memory that greta wrote them to: nothing is copied.
        """
        args = {"last": _arguments.flag("last", last)}
        ids = self.tokenizer.encode(tokens) if isinstance(tokens, str) else _ids("tokens", tokens)
        answer, data = self._call("logits", {"tokens": ids, **args})
        out = self._received(answer["logits"], data)
        return out[0] if last else out  # type: ignore[no-any-return]

    def __call__(self, x: Any, *, out: Any = None) -> Any:
        """A block's output [n, width] for rows x [n, width] from position 0 on; a model's logits for tokens.

        Of x in memory of a GPU, and of `out`, what Session.block says is true.
        """
        if self.info.kind != "block":
            if out is not None:
                raise UsageError("out is for a block's rows in memory of a GPU")
            return self.logits(x)
        return self._fresh()._block(x, out, {"reset": True})

    def _fresh(self) -> Session:
        """The session of calls that begin at position 0 each."""
        with self._lock:
            session = Session(self, self._forward)
            self._forward = session._id
            session._own = False  # it is the model's
            return session

    def session(self) -> Session:
        """A session: caches of one's own."""
        self._number()
        return Session(self)

    def embed(
        self,
        texts: str | Sequence[str],
        *,
        normalize: bool = False,
        dimensions: int = 0,
        prompt: str = "",
        truncate: bool = True,
    ) -> Array:
        """Vectors of texts: float32 [texts, width], of a single text [width]. The model is an encoder, or loaded with
        task="embed".

        normalize: of length 1, also where the model's files do not ask for it; dimensions: the first so many values
        alone, 0: all; prompt: the name of a text that the model's files put before each; without truncate a text that
        is too long is a UsageError.
        """
        single = isinstance(texts, str)
        args = {
            "texts": [texts] if isinstance(texts, str) else _arguments.texts("texts", texts),
            "normalize": _arguments.flag("normalize", normalize),
            "dimensions": _arguments.whole("dimensions", dimensions, 0),
            "prompt": _arguments.text("prompt", prompt),
            "no_truncate": not _arguments.flag("truncate", truncate),
        }
        answer, data = self._call("embed", args)
        out = self._received(answer["embeddings"], data)
        return out[0] if single else out  # type: ignore[no-any-return]

    def check(self, tokens: Sequence[int] | None = None, *, tolerance: float = 0) -> CheckReport:
        """Compares every operator with the float64 reference, on tokens or on ten made up ones.

        tolerance: relative L2 error that counts as a difference; 0: what the type of the caches allows.
        """
        limit = _arguments.real("tolerance", tolerance)
        if limit < 0:
            raise UsageError(f"tolerance is {tolerance}, it must be 0 or more")
        args = {"tokens": None if tokens is None else _ids("tokens", tokens), "tolerance": limit}
        raw, _ = self._call("check", args)
        ok = (
            raw.get("diverged") is None
            and raw["prefill_equals_decode"]
            and raw["replay_equals_eager"]
            and raw["repeats_bit_identical"]
        )
        worst = max((o["relative_l2"] for o in raw["ops"]), default=0.0)
        return CheckReport(ok, raw["verdict"], raw["limit"], worst, raw.get("diverged"), raw["ops"], raw)

    def plan(self, stage: str = "plan", *, tokens: int = 1, format: str = "text") -> str:
        """A step of so many tokens at a stage: spec, graph, fused, plan (memory, kernels and why), program.

        format: text, or dot for Graphviz (graph and fused).
        """
        args = {
            "stage": _arguments.text("stage", stage),
            "tokens": _arguments.whole("tokens", tokens, 1),
            "format": _arguments.text("format", format),
        }
        return str(self._call("plan", args)[0]["text"])

    def close(self) -> None:
        """Frees the model. What is under way with it is cancelled."""
        number, self._id = self._id, None
        self._lender.close()
        if number is not None and self._process.alive:
            self._process.call("close", {"model": number})

    def __del__(self) -> None:
        number = getattr(self, "_id", None)
        if number is not None:
            self._process.later("close", {"model": number}, answered=True)

    def __reduce__(self) -> str:
        raise UsageError(f"{self!r} belongs to its process and cannot be pickled or copied: load it where it is needed")

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<greta.Model {self.info.name} of {self.info.source} on {self.info.device}>"


_names = {
    "max_new_tokens": "max_tokens",
    "min_new_tokens": "min_tokens",
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "typical_p": "typical_p",
    "repetition_penalty": "repeat_penalty",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
    "num_return_sequences": "choices",
    "seed": "seed",
    "ignore_eos": "ignore_eos",
    "logprobs": "logprobs",
    "parse_special": "special",
    "add_special_tokens": "bos",
    "adapter": "adapter",
    "priority": "priority",
    "schema": "schema",
    "json": "json",
    "regex": "regex",
    "choice": "choice",
    "grammar": "grammar",
}


def _generate_args(options: dict[str, Any]) -> dict[str, Any]:
    """Options of generate as the protocol has them."""
    args: dict[str, Any] = {}
    sample = options.pop("do_sample", None)
    if sample is not None:
        sample = _arguments.flag("do_sample", sample)
    if sample and options.get("temperature") is None:
        options["temperature"] = 1.0
    if sample is False and options.get("temperature"):
        raise UsageError("do_sample=False takes the most likely token: leave temperature out")
    stops = options.pop("stop_strings", None)
    if stops is not None:
        args["stop"] = [stops] if isinstance(stops, str) else _arguments.texts("stop_strings", stops)
    bias = options.pop("logit_bias", None)
    if bias is not None:
        bias = _arguments.mapping("logit_bias", bias, "a dict of numbers by token id")
        args["logit_bias"] = {
            str(_bias_of(k)): _arguments.real(f"logit_bias[{_arguments.shown(k)}]", v) for k, v in bias.items()
        }
    for name, value in options.items():
        if name not in _names:
            import difflib

            near = difflib.get_close_matches(name, [*_names, "do_sample", "stop_strings", "logit_bias"], 1)
            hint = f"; did you mean {near[0]}?" if near else "; there are " + ", ".join(sorted(_names))
            raise UsageError(f"generate has no option {name}{hint}")
        if value is not None:
            args[_names[name]] = _value(name, value)
    return args


def _bias_of(token: Any) -> int:
    """A token's id, which may be a text as JSON has it."""
    if isinstance(token, str) and token.isdecimal():
        token = int(token)
    return _arguments.whole("logit_bias: a token's id", token, 0, (1 << 31) - 1)


#: The least that an option of generate may be which is a whole number, and the most.
_whole = {
    "max_new_tokens": (0, _arguments.MOST),
    "min_new_tokens": (0, _arguments.MOST),
    "top_k": (0, _arguments.MOST),
    "num_return_sequences": (1, _arguments.MOST),
    "seed": (0, (1 << 64) - 1),
    "logprobs": (0, _arguments.MOST),
    "priority": (-_arguments.MOST, _arguments.MOST),
}
_real = (
    "temperature",
    "top_p",
    "min_p",
    "typical_p",
    "repetition_penalty",
    "frequency_penalty",
    "presence_penalty",
)
_flags = ("ignore_eos", "parse_special", "add_special_tokens", "json")


def _value(name: str, value: Any) -> Any:
    """An option of generate."""
    if name in _whole:
        return _arguments.whole(name, value, *_whole[name])
    if name in _real:
        number = _arguments.real(name, value)
        if name == "repetition_penalty" and number <= 0:
            raise UsageError(f"{name} is {value}, it must be above 0")
        return number
    if name in _flags:
        return _arguments.flag(name, value)
    if name == "choice":
        value = _arguments.texts(name, value)
    elif name == "schema":
        return value if isinstance(value, bool) else _arguments.mapping(name, value, "a dict, a JSON schema,")
    else:
        value = _arguments.text(name, value)
    if name in ("regex", "choice", "grammar") and not value:
        raise UsageError(f"{name} is empty: it says nothing of the answer's form")
    return value
