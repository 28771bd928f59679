"""The process of greta's and the frames that go to and fro. docs/pipe.md has the protocol."""

from __future__ import annotations

import atexit
import collections
import functools
import io
import itertools
import json
import logging
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue
from typing import Any

from . import _arguments, _shared
from ._binary import find_binary
from ._errors import DeviceError, GretaError, ProcessDied, ProtocolError, UsageError, from_wire

PROTOCOL = 1

_prefix = struct.Struct("<IQ")
_most_header = 64 << 20
_most_payload = 16 << 30
#: Writes up to this are whole or not at all (POSIX's least PIPE_BUF is 512, Linux' 4096).
_atomic = 4096 if sys.platform == "linux" else 512

_log = logging.getLogger("greta")

#: What a request's parts and end are given to: a message, its payload.
Handler = Callable[["dict[str, Any] | GretaError", memoryview], None]


class Process:
    """A process `greta pipe`, which holds models and answers requests of any number of threads.

    One is started when it is first needed, and shared; another of one's own isolates what may crash. It ends with
    close(), at the end of a `with`, or with this program, however that ends.
    """

    def __init__(self, binary: str | os.PathLike[str] | None = None, *, env: Mapping[str, str] | None = None) -> None:
        """Starts the program `binary` (default: `find_binary()`), with variables `env` beside this program's.

        Raises BinaryNotFoundError, VersionError where it speaks another version of the protocol, ProtocolError where it
        is no greta.
        """
        if env is not None:
            for name, value in _arguments.mapping("env", env, "a dict of variables").items():
                _arguments.text(f"env[{name!r}]", value)
                _arguments.text("a variable's name in env", name)
        self.binary = find_binary() if binary is None else _arguments.path("binary", binary)
        self._owner = os.getpid()
        self.folder = _folder()  #: in which it finds relative paths
        self._ids = itertools.count(1)
        self._pending: dict[int, Handler] = {}
        self._lock = threading.Lock()  # of _pending and _died
        self._writing = threading.Lock()
        self._died: ProcessDied | None = None
        self._closing = False
        self._large: SimpleQueue[tuple[bytes, Any, SimpleQueue[OSError | None] | None]] = SimpleQueue()
        self._last: collections.deque[str] = collections.deque(maxlen=40)
        # In a group of its own a terminal's Ctrl-C does not reach it: that cancels a request instead.
        own: dict[str, Any] = {"start_new_session": True}
        if sys.platform == "win32":
            own = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
        self._socket, theirs = _socket_pair()
        if theirs is not None:
            own["pass_fds"] = (theirs.fileno(),)
        try:
            self._popen = subprocess.Popen(
                [self.binary, "pipe"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env={**os.environ, **(env or {})},
                **own,
            )
        except OSError as e:
            self._close_socket()
            raise ProtocolError(f"{self.binary} does not start: {e}") from e
        finally:
            there = 0
            if theirs is not None:
                there = theirs.fileno()
                theirs.close()
        assert self._popen.stdin and self._popen.stdout and self._popen.stderr
        self.pid = self._popen.pid
        self._in = self._popen.stdin.fileno()
        self._out = io.BufferedReader(self._popen.stdout, 64 << 10)  # type: ignore[type-var]
        me = weakref.ref(self)
        self._errors = threading.Thread(
            target=_read_errors, args=(self._popen.stderr, self._last), name="greta stderr", daemon=True
        )
        self._errors.start()
        self._reader = threading.Thread(target=_read_frames, args=(me, self._out), name="greta reader", daemon=True)
        self._reader.start()
        self._writer = threading.Thread(
            target=_write_large, args=(self._large, self._in, self._writing), name="greta writer", daemon=True
        )
        self._writer.start()
        _all.add(self)
        try:
            self.info = self._hello(there)
        except BaseException:
            self.close()
            raise

    def _hello(self, there: int) -> dict[str, Any]:
        from ._version import __version__

        hello: dict[str, Any] = {"protocol": PROTOCOL, "client": f"python-greta {__version__}"}
        hello["shared"] = _shared.SHARING
        if there:
            hello["descriptors"] = there
        try:
            answer, _ = self.call("hello", hello)
        except ProcessDied as e:
            text = f"{self.binary} pipe does not answer: is it a greta that has this verb? {e}"
            raise ProtocolError(text) from e
        if answer.get("protocol") != PROTOCOL:
            raise ProtocolError(f"{self.binary} answers with version {answer.get('protocol')} of the protocol")
        if not answer.get("descriptors"):  # an older one
            self._close_socket()
        return answer

    @property
    def version(self) -> str:
        """greta's version."""
        return str(self.info["greta"])

    @property
    def alive(self) -> bool:
        """Whether it runs and takes requests."""
        return self._died is None and not self._closing and self._owner == os.getpid()

    def call(
        self, op: str, args: dict[str, Any], payload: Any = b"", *, keep: object = None
    ) -> tuple[dict[str, Any], memoryview]:
        """Asks for an operation and waits for its answer and payload. An interrupt cancels it. keep lives until
        greta has ended the request, also where nobody waits for that any more.

        Raises the exception of its error, ProcessDied where the process ends meanwhile.
        """
        answers: SimpleQueue[tuple[dict[str, Any] | GretaError, memoryview]] = SimpleQueue()
        request = self.number()
        parts: list[Any] = []
        try:
            self.begin(request, op, args, lambda m, p: answers.put((m, p)), payload)
            while True:
                message, data = wait(answers)
                if isinstance(message, GretaError):
                    if parts:
                        message.parts = parts  # type: ignore[attr-defined]
                    raise message
                if "event" in message:
                    parts.append(message["event"])
                    continue
                return message["ok"], data
        except GretaError:
            raise
        except BaseException:  # an interrupt
            self.abandon(request, keep)
            raise

    def number(self) -> int:
        """A number for a request."""
        return next(self._ids)

    def begin(self, request: int, op: str, args: dict[str, Any], handler: Handler, payload: Any = b"") -> None:
        """Asks for an operation under a number of one's own. handler gets its parts and end, from another thread.

        What an interrupt ends here may be under way all the same: abandon it.
        """
        self._check()
        head = _encode({"id": request, "op": op, "args": args}, payload)
        with self._lock:
            if self._died is not None:
                raise _again(self._died)
            self._pending[request] = handler
        try:
            self._send(head, payload)
        except GretaError:  # the process takes nothing any more
            with self._lock:
                self._pending.pop(request, None)
            raise

    def abandon(self, request: int, keep: object = None) -> None:
        """Cancels a request whose answer nobody waits for any more. Of one that has ended, nothing."""
        with self._lock:
            if request not in self._pending:
                return
            self._pending[request] = functools.partial(self._drop, keep=keep)
        # Behind the request, which may be on its way to the pipe yet.
        self.abandon_later(request)

    def abandon_later(self, request: int) -> None:
        """Cancels a request from where no lock may be taken: a finalizer. The writer's thread sends it."""
        self.later("cancel", {"target": request})

    def later(self, op: str, args: dict[str, Any], *, answered: bool = False) -> None:
        """Sends what is not answered, or whose answer nobody wants, from where no lock may be taken."""
        if self.alive:
            number = self.number() if answered else 0
            self._large.put((_encode({"id": number, "op": op, "args": args}, b""), b"", None))

    def lend(self, fd: int) -> int:
        """Sends a file's descriptor, and gives the number by which a request names it. Ours may be closed behind this.

        Raises DeviceError where that cannot be.
        """
        number = self.number()
        ours = self._socket
        if ours is None or not self.alive:
            raise DeviceError("greta takes no descriptors here")
        try:
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("=i", fd))
            ours.sendmsg([struct.pack("<Q", number)], [rights], socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except OSError as e:
            raise DeviceError(f"greta takes no descriptor: {e}") from e
        return number

    def _close_socket(self) -> None:
        ours, self._socket = self._socket, None
        if ours is not None:
            ours.close()

    def tell(self, op: str, target: int) -> None:
        """Sends what is not answered: cancel, release."""
        self._check()
        self._send(_encode({"id": 0, "op": op, "args": {"target": target}}, b""), b"")

    def _check(self) -> None:
        if self._owner != os.getpid():
            raise ProcessDied("this process was forked of the one that greta belongs to: load the model here again")
        if self._died is not None:
            raise _again(self._died)
        if self._closing:
            raise ProcessDied("greta's process was closed")

    def _drop(self, message: dict[str, Any] | GretaError, payload: memoryview, *, keep: object = None) -> None:
        if isinstance(message, dict) and "ok" in message:
            for value in message["ok"].values():
                if isinstance(value, dict) and value.get("lease"):
                    self.tell("release", value["lease"])

    def _send(self, head: bytes, payload: Any) -> None:
        size = memoryview(payload).nbytes
        if len(head) + size <= _atomic:
            try:
                with self._writing:
                    os.write(self._in, head + bytes(payload) if size else head)
            except OSError as e:
                raise self._broken(e) from e
            return
        # Longer ones are written by a thread that no interrupt reaches: half a frame would be the end of all.
        done: SimpleQueue[OSError | None] = SimpleQueue()
        self._large.put((head, payload, done))
        failed = wait(done)
        if failed is not None:
            raise self._broken(failed) from failed

    def _broken(self, e: OSError) -> GretaError:
        self._reader.join(2)  # it says why
        return _again(self._died) if self._died is not None else ProcessDied(f"greta's process takes no requests: {e}")

    def _deliver(self, message: dict[str, Any], payload: memoryview) -> None:
        number = message.get("id", 0)
        last = "event" not in message
        with self._lock:
            handler = self._pending.pop(number, None) if last else self._pending.get(number)
        item: dict[str, Any] | GretaError = message
        if "error" in message:
            item = from_wire(message["error"])
        if handler is not None:
            try:
                handler(item, payload)
            except Exception as e:  # a loop that was closed meanwhile must not end the reader
                _log.debug("an answer could not be given: %s", e)
        elif isinstance(item, GretaError):
            _log.warning("%s", item)

    def _end(self, why: str) -> None:
        """The stream has ended: everyone who waits is told why."""
        try:
            code: int | None = self._popen.wait(5)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            code = self._popen.wait()
        self._errors.join(1)
        stderr = "\n".join(self._last)
        how = f"exit code {code}"
        if code is not None and code < 0:
            try:
                how = signal.Signals(-code).name
            except ValueError:
                how = f"signal {-code}"
        text = f"greta's process ended ({how}{why})" if not self._closing else "greta's process was closed"
        if stderr and not self._closing:
            text += "; its last lines:\n" + stderr
        died = ProcessDied(text, code, stderr)
        self._close_socket()
        with self._lock:
            self._died = died
            waiting, self._pending = list(self._pending.values()), {}
        for handler in waiting:
            try:
                handler(_again(died), memoryview(b""))
            except Exception as e:
                _log.debug("the end could not be told: %s", e)

    def close(self, timeout: float = 5) -> None:
        """Ends the process: requests under way are cancelled. After `timeout` seconds it is killed."""
        if self._owner != os.getpid():
            return
        self._closing = True
        _all.discard(self)
        self._close_socket()
        if self._popen.stdin is not None and not self._popen.stdin.closed:
            with self._writing:
                self._popen.stdin.close()
        try:
            self._popen.wait(timeout)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        if threading.current_thread() is not self._reader:
            self._reader.join(timeout)
            self._errors.join(timeout)
            self._out.close()
            if self._popen.stderr is not None:
                self._popen.stderr.close()
        self._large.put((b"", None, None))
        if threading.current_thread() not in (self._reader, self._writer):
            self._writer.join(timeout)  # a thread that is there when the program ends may abort it

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<greta.Process {self.pid} of {self.binary}{'' if self.alive else ', ended'}>"


def _socket_pair() -> tuple[socket.socket | None, socket.socket | None]:
    """The two ends of what descriptors go by to greta; nothing where none do."""
    if sys.platform != "linux":
        return None, None
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)  # a greta that stands still holds nobody up
    return ours, theirs


def _again(e: ProcessDied) -> ProcessDied:
    """A fresh exception: one that is raised twice gathers tracebacks."""
    return ProcessDied(str(e), e.returncode, e.stderr)


def _plain(value: Any) -> Any:
    """A number of NumPy's, or an array, as Python's own."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{value!r} is no text, number or list")


# Made once: json.dumps would make an encoder for each message, which takes longer than a small one.
_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_plain).encode


def _encode(message: dict[str, Any], payload: Any) -> bytes:
    """A frame up to its payload. Raises UsageError for what greta would not take for a request, which would end it."""
    try:
        text = _json(message)
    except (TypeError, ValueError, RecursionError) as e:  # what is no JSON, among it infinity and what is no number
        raise UsageError(f"{message['op']}: an argument cannot be sent: {e}") from e
    header = text.encode("utf-8", "surrogatepass")
    if len(header) > _most_header:
        raise UsageError(f"{message['op']}: arguments of {len(header)} bytes: at most {_most_header} can be sent")
    return _prefix.pack(len(header), memoryview(payload).nbytes) + header


#: How long a wait goes on without a look whether there was a Ctrl-C. On Windows none ends a wait; elsewhere one does
#: not that comes just before the wait, or to another thread.
_look = 0.05 if sys.platform == "win32" else 0.5


def wait(answers: SimpleQueue[Any]) -> Any:
    """The next item. Ctrl-C ends the wait."""
    while True:
        try:
            return answers.get(timeout=_look)
        except Empty:
            continue


def _read_exactly(stream: io.BufferedReader, n: int) -> bytes | bytearray:
    if n <= 1 << 16:
        data = stream.read(n)
        if len(data) < n:
            raise EOFError
        return data
    buffer = bytearray(n)
    view, got = memoryview(buffer), 0
    while got < n:
        k = stream.readinto(view[got:])
        if not k:
            raise EOFError
        got += k
    return buffer


def _read_frames(me: weakref.ref[Process], stream: io.BufferedReader) -> None:
    why = ""
    try:
        while True:
            header, size = _prefix.unpack(_read_exactly(stream, _prefix.size))
            if not 2 <= header <= _most_header or size > _most_payload:
                why = ", what it wrote is no frame of the protocol"
                break
            # As text: of bytes json looks for the encoding first.
            message = json.loads(_read_exactly(stream, header).decode("utf-8", "surrogatepass"))
            payload = memoryview(_read_exactly(stream, size)) if size else memoryview(b"")
            process = me()
            if process is None:
                return
            process._deliver(message, payload)
            del process, message, payload
    except (EOFError, OSError):
        pass
    except ValueError as e:
        why = f", what it wrote is no message: {e}"
    process = me()
    if process is not None:
        if why:
            process._popen.kill()
        process._end(why)


def _read_errors(stream: Any, last: collections.deque[str]) -> None:
    with io.TextIOWrapper(stream, encoding="utf-8", errors="replace") as text:
        try:
            for line in text:
                last.append(line.rstrip())
                _log.info("%s", line.rstrip())
        except (OSError, ValueError):
            pass


def _write_large(queue: SimpleQueue[Any], fd: int, writing: threading.Lock) -> None:
    while True:
        head, payload, done = queue.get()
        if not head:
            return
        try:
            with writing:
                for part in (memoryview(head), memoryview(payload).cast("B")):
                    while part.nbytes:
                        part = part[os.write(fd, part[: 1 << 20]) :]
            failed = None
        except OSError as e:
            failed = e
        if done is not None:
            done.put(failed)


_all: weakref.WeakSet[Process] = weakref.WeakSet()
_shared_process: Process | None = None
_starting = threading.Lock()


def default_process() -> Process:
    """The process that is shared: started when it is first needed, and anew where it has died."""
    global _shared_process
    with _starting:
        if _shared_process is None or not _shared_process.alive:
            _shared_process = Process()
        return _shared_process


@atexit.register
def _close_all() -> None:
    for p in list(_all):
        p.close(2)


def _folder() -> str:
    """The folder that this program is in; "" where it was deleted."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def here(path: object, process: Process) -> object:
    """A path, or several, as greta finds them: its process stays in the folder in which it was started.

    What is a file in neither folder is left as it is, for it may be a name.
    """
    if isinstance(path, (list, tuple)):
        return [here(p, process) for p in path]
    if isinstance(path, (str, os.PathLike)) and process.folder != _folder():
        there = os.path.exists(path) or os.path.exists(os.path.join(process.folder, path))
        if there and (os.path.isabs(path) or _folder()):
            return os.path.abspath(path)
    return path
