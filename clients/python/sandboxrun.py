"""Run programs that nobody has read, in sandboxes of the ``sandboxrun`` command.

    from sandboxrun import Sandbox

    with Sandbox(policy={"version": 1, "workspace": {"source": "tmpfs", "path": "/w"}}) as sb:
        done = sb.exec(["python3", "main.py"], put={"main.py": "print(6 * 7)"}, timeout=10)
        assert done.stdout == "42\n"

A sandbox is made when it is first used. Every sandbox of a process shares one ``sandboxrun serve --stdio``, which ends with the process, and
every sandbox with it. ``AsyncSandbox`` is the same for asyncio, ``NullSandbox`` refuses everything. Only the standard library is needed.
"""

from __future__ import annotations

import asyncio
import atexit
import base64
import json
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Optional, Union

__all__ = [
    "AsyncSandbox", "Cancelled", "Client", "ExecHandle", "ExecResult", "NullSandbox", "Sandbox", "SandboxError", "SandboxUnavailable",
]
__version__ = "0.1.0"

Content = Union[str, bytes, "os.PathLike[str]"]
"""What is put: text, bytes, or the path of a file or directory of the host."""
OnOutput = Callable[[str, bytes], None]
"""Called with "stdout" or "stderr" and what was written, in a thread of the client's."""


class SandboxError(Exception):
    """Something that could not be done, with a stable ``code`` and a ``hint``."""

    def __init__(self, message: str, code: str = "failed", hint: str = "") -> None:
        super().__init__(message)
        self.code, self.hint = code, hint


class SandboxUnavailable(SandboxError):
    """There is no sandbox: the launcher is not there, has ended, or this is a NullSandbox."""


class Cancelled(SandboxError):
    """The connection has ended before the answer came."""


@dataclass(frozen=True)
class ExecResult:
    """How an exec ended. ``raw`` is all that docs/result.md says."""

    outcome: str
    exit_code: int
    stdout: str
    stderr: str
    stdout_bytes: bytes
    stderr_bytes: bytes
    timed_out: bool
    finding: Optional[str]
    answer: Optional[bytes]
    files: dict[str, bytes]
    errors: dict[str, str]
    dropped: list[tuple[str, str]]
    raw: dict[str, Any] = field(repr=False)

    @property
    def ok(self) -> bool:
        """The program exited with 0."""
        return self.outcome == "exited" and self.exit_code == 0

    def check(self) -> "ExecResult":
        """Raises SandboxError unless the program exited with 0."""
        if not self.ok:
            error = self.raw.get("error") or {}
            message = error.get("message") or f"{self.outcome}, exit status {self.exit_code}: {self.stderr[-2000:]}"
            raise SandboxError(message, error.get("code") or self.finding or self.outcome, error.get("hint") or "")
        return self


def _content(item: Mapping[str, Any]) -> bytes:
    if item.get("base64"):
        return base64.b64decode(item["base64"])
    return str(item.get("text", "")).encode()


def _stream(raw: Mapping[str, Any], name: str) -> bytes:
    if raw.get(name + "_base64"):
        return base64.b64decode(raw[name + "_base64"])
    return str(raw[name]).encode()


def _result(raw: dict[str, Any]) -> ExecResult:
    answer = raw.get("answer")
    collected = raw.get("collected") or []
    return ExecResult(
        outcome=raw["outcome"], exit_code=raw["exit_code"], stdout=raw["stdout"], stderr=raw["stderr"],
        stdout_bytes=_stream(raw, "stdout"), stderr_bytes=_stream(raw, "stderr"), timed_out=raw["timed_out"], finding=raw["finding"],
        answer=None if answer is None else _content(answer),
        files={c["path"]: _content(c) for c in collected if not c.get("error") and not c.get("to")},
        errors={c["path"]: c["error"]["message"] for c in collected if c.get("error")},
        dropped=[(d["path"], d["why"]) for d in raw.get("dropped") or []], raw=raw,
    )


def _put(files: Optional[Mapping[str, Content]]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, content in (files or {}).items():
        if isinstance(content, str):
            out[name] = content
        elif isinstance(content, (bytes, bytearray, memoryview)):
            out[name] = {"base64": base64.b64encode(content).decode()}
        else:
            out[name] = {"file": os.path.abspath(os.fspath(content))}
    return out


class _Call:
    """A request whose answer is waited for."""

    def __init__(self, done: Callable[["_Call"], None], on_output: Optional[OnOutput]) -> None:
        self.id = 0
        self.result: Any = None
        self.error: Optional[SandboxError] = None
        self.on_output = on_output
        self._done = done

    def finish(self, result: Any = None, error: Optional[SandboxError] = None) -> None:
        self.result, self.error = result, error
        self._done(self)

    def get(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.result


def _error(e: Mapping[str, Any]) -> SandboxError:
    data = e.get("data") or {}
    code = data.get("code") or {-32601: "unknown_method", -32602: "usage", -32001: "busy"}.get(e["code"], "failed")
    return SandboxError(e["message"], code, data.get("hint") or "")


class Client:
    """A connection to ``sandboxrun serve --stdio``, a process of its own, or to the server at an ``address``: the path of its socket, or
    ``(host, port)`` of one that is forwarded. May be used by any number of threads."""

    def __init__(
        self, binary: Optional[str] = None, *, root: Optional[str] = None, env: Optional[Mapping[str, str]] = None,
        address: Union[None, str, tuple[str, int]] = None,
    ) -> None:
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._socket: Optional[socket.socket] = None
        if address is None:
            self._spawn(binary, root, env)
        else:
            self._connect(address)
        self._lock, self._write = threading.Lock(), threading.Lock()
        self._calls: dict[int, _Call] = {}
        self._last = 0
        self._gone: Optional[SandboxError] = None
        self.pid = os.getpid()
        self._reader = threading.Thread(target=self._read, name="sandboxrun", daemon=True)
        self._reader.start()

    def _connect(self, address: Union[str, tuple[str, int]]) -> None:
        try:
            if isinstance(address, str):
                self._socket = socket.socket(socket.AF_UNIX)
                self._socket.connect(address)
            else:
                self._socket = socket.create_connection(address)
        except OSError as e:
            raise SandboxUnavailable(f"connect to {address}: {e}", "no_server") from e
        self._in, self._out = self._socket.makefile("wb"), self._socket.makefile("rb")

    def _spawn(self, binary: Optional[str], root: Optional[str], env: Optional[Mapping[str, str]]) -> None:
        path = binary or os.environ.get("SANDBOXRUN_BIN") or shutil.which("sandboxrun")
        if path is None:
            raise SandboxUnavailable("sandboxrun is not installed", "not_installed", "put it in PATH, or set SANDBOXRUN_BIN")
        command = [path, *(["--root", root] if root else []), "serve", "--stdio"]
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=None if env is None else dict(env))
        except OSError as e:
            raise SandboxUnavailable(f"start {path}: {e}", "not_installed") from e
        assert self._process.stdin is not None and self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout

    def begin(self, method: str, params: Mapping[str, Any], call: _Call) -> None:
        """Sends a request. The call is finished when its answer is there."""
        with self._lock:
            if self._gone is None:
                self._last += 1
                call.id = self._last
                self._calls[call.id] = call
        if self._gone is not None and not call.id:
            call.finish(error=self._gone)
            return
        line = json.dumps({"jsonrpc": "2.0", "id": call.id, "method": method, "params": params}, separators=(",", ":")).encode() + b"\n"
        try:
            with self._write:
                self._in.write(line)
                self._in.flush()
        except (OSError, ValueError):
            self._end()

    def call(self, method: str, params: Mapping[str, Any]) -> Any:
        """Asks and waits for the answer."""
        done = threading.Lock()
        done.acquire()
        call = _Call(lambda _: done.release(), None)
        self.begin(method, params, call)
        done.acquire()
        return call.get()

    def _read(self) -> None:
        for message in self._messages():
            if message.get("method") == "exec/output":
                self._output(message["params"])
                continue
            with self._lock:
                call = self._calls.pop(message["id"], None)
            if call is not None:
                error = message.get("error")
                call.finish(message.get("result"), _error(error) if error else None)
        self._end()

    def _messages(self) -> Iterator[dict[str, Any]]:
        try:
            for line in self._out:
                yield json.loads(line)
        except (OSError, ValueError):  # the connection is broken, or closed by us
            return

    def _output(self, note: Mapping[str, Any]) -> None:
        with self._lock:
            call = self._calls.get(note["id"])
        if call is not None and call.on_output is not None:
            data = base64.b64decode(note["base64"]) if "base64" in note else note["data"].encode()
            try:
                call.on_output(note["stream"], data)
            except Exception:  # noqa: BLE001 - what the caller's function does must not end the connection
                call.on_output = None

    def _end(self) -> None:
        with self._lock:
            self._gone = self._gone or Cancelled("the sandboxrun server has ended", "server_ended")
            calls, self._calls = list(self._calls.values()), {}
        for call in calls:
            call.finish(error=self._gone)

    def close(self) -> None:
        """Ends every sandbox of this connection."""
        with self._lock:
            self._gone = self._gone or Cancelled("the client is closed", "closed")
        try:
            if self._socket is not None:
                self._socket.shutdown(socket.SHUT_RDWR)
            self._in.close()
        except OSError:
            pass
        if self._process is not None:
            self._process.wait()
        if threading.current_thread() is not self._reader:
            self._reader.join()
        self._out.close()
        if self._socket is not None:
            self._socket.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_shared: Optional[Client] = None
_shared_lock = threading.Lock()


def _client() -> Client:
    """The connection that all sandboxes share unless they are given another; a forked process gets its own."""
    global _shared
    with _shared_lock:
        if _shared is None or _shared.pid != os.getpid() or _shared._gone is not None:
            _shared = Client()
            atexit.register(_close, _shared)
        return _shared


def _close(client: Client) -> None:
    if client.pid == os.getpid():
        client.close()


class ExecHandle:
    """An exec that runs."""

    def __init__(self, client: Client, on_output: Optional[OnOutput]) -> None:
        self._client, self._finished = client, threading.Lock()  # held until it is; an Event costs three of them
        self._finished.acquire()
        self._call = _Call(lambda _: self._finished.release(), on_output)

    def write(self, data: Union[str, bytes]) -> None:
        """Gives the program input, and returns when it has room for it."""
        raw = data.encode() if isinstance(data, str) else bytes(data)
        self._client.call("exec/stdin", {"id": self._call.id, "base64": base64.b64encode(raw).decode()})

    def close_stdin(self) -> None:
        """Tells the program that no more input comes."""
        self._client.call("exec/stdin", {"id": self._call.id, "eof": True})

    def resize(self, rows: int, cols: int) -> None:
        """Changes the size of the program's terminal."""
        self._client.call("exec/resize", {"id": self._call.id, "rows": rows, "cols": cols})

    def cancel(self) -> None:
        """Ends the program and all that it has started. wait() still tells what there is to tell."""
        try:
            self._client.call("cancel", {"id": self._call.id})
        except SandboxError as e:
            if e.code != "not_found":
                raise

    def wait(self, timeout: Optional[float] = None) -> ExecResult:
        """Waits for the end; TimeoutError after so many seconds, and then it goes on."""
        if not self._finished.acquire(timeout=-1 if timeout is None else max(timeout, 0)):
            raise TimeoutError("the exec still runs")
        self._finished.release()
        return _result(self._call.get())


class _Base:
    kind = "sandboxrun"

    def __init__(
        self, policy: Union[None, str, Mapping[str, Any], "os.PathLike[str]"] = None, *, policy_text: Optional[str] = None,
        read: Sequence[str] = (), write: Sequence[str] = (), bind: Sequence[str] = (), deny: Sequence[str] = (),
        allow_host: Sequence[str] = (), id: Optional[str] = None, record: Optional[str] = None, client: Optional[Client] = None,
        warm: Optional[Mapping[str, int]] = None,
    ) -> None:
        params: dict[str, Any] = {
            "policy": policy if policy is None or isinstance(policy, (str, Mapping)) else os.fspath(policy), "policy_text": policy_text,
            "read": list(read), "write": list(write), "bind": list(bind), "deny": list(deny), "allow_host": list(allow_host), "id": id,
            "record": record, "warm": warm and dict(warm),
        }
        self._params = {name: value for name, value in params.items() if value}
        self._given, self._client = client, client
        self._made: Optional[dict[str, Any]] = None
        self._disposed = False

    def _info(self) -> dict[str, Any]:
        if self._made is None:
            raise SandboxError("the sandbox has not been used yet", "not_created")
        return self._made

    def _begin(self) -> Client:
        if self._disposed:
            raise SandboxUnavailable("the sandbox is disposed", "disposed")
        if self._client is None:
            self._client = _client()
        return self._client


class Sandbox(_Base):
    """A sandbox. It is made when it is first used, and ends with ``dispose``, the ``with`` block, or this process."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._making = threading.Lock()

    def create(self) -> "Sandbox":
        """Makes the sandbox, if it is not there yet."""
        client = self._begin()
        with self._making:
            if self._made is None:
                self._made = client.call("create", self._params)
        return self

    @property
    def id(self) -> str:
        return str(self.create()._info()["id"])

    @property
    def isolated(self) -> bool:
        """Every check that each sandbox needs was held at its start, and none was broken."""
        return bool(self.create()._info()["isolated"])

    @property
    def workdir(self) -> str:
        """Where programs start, and what paths are relative to."""
        return str(self.create()._info()["workdir"])

    @property
    def info(self) -> dict[str, Any]:
        """What create has answered: checks, limits, paths, weaker."""
        return self.create()._info()

    def start(
        self, argv: Sequence[str], *, put: Optional[Mapping[str, Content]] = None, collect: Sequence[Union[str, Mapping[str, Any]]] = (),
        fresh: Sequence[str] = (), env: Optional[Mapping[str, str]] = None, cwd: Optional[str] = None,
        stdin: Union[None, str, bytes] = None, stdin_open: bool = False, timeout: Optional[float] = None, memory: Optional[int] = None,
        pids: Optional[int] = None, answer: bool = False, on_output: Optional[OnOutput] = None, tty: Optional[tuple[int, int]] = None,
        on_output_limit: Optional[str] = None, view: Optional[str] = None, read: Sequence[str] = (), bind: Sequence[str] = (),
        deny: Sequence[str] = (), warm: bool = False,
    ) -> ExecHandle:
        """Starts a program. With ``on_output`` its output is not kept. A timeout is in seconds. ``warm`` lets it have a python3 that was
        started ahead: ``raw["warm"]`` of the result says whether it had."""
        options = {name: value for name, value in locals().items() if name not in ("self", "argv")}
        handle = ExecHandle(self.create()._begin(), on_output)
        self._send(handle, argv, options)
        return handle

    def _send(self, handle: ExecHandle, argv: Sequence[str], options: Mapping[str, Any]) -> None:
        o = dict(options)
        stdin, put, tty = o.pop("stdin", None), o.pop("put", None), o.pop("tty", None)
        params: dict[str, Any] = {"sandbox": self._info()["id"], "argv": list(argv), "stream": o.pop("on_output", None) is not None}
        if isinstance(stdin, str):
            params["stdin"] = stdin
        elif stdin is not None:
            params["stdin_base64"] = base64.b64encode(stdin).decode()
        if put:
            params["put"] = _put(put)
        if tty is not None:
            params["tty"] = {"rows": tty[0], "cols": tty[1]}
        for name, value in o.items():
            if value is not None and value != () and (name, value) != ("warm", False):
                params[name] = list(value) if isinstance(value, (tuple, set, frozenset)) else value
        handle._client.begin("exec", params, handle._call)

    def exec(self, argv: Sequence[str], **options: Any) -> ExecResult:
        """Runs a program and waits for its end; takes what ``start`` takes. An exception of this thread's ends the program."""
        handle = self.start(argv, **options)
        try:
            return handle.wait()
        except BaseException:
            handle.cancel()
            raise

    def put(self, files: Mapping[str, Content], *, cwd: Optional[str] = None) -> None:
        """Writes files with the rights of the sandbox's programs."""
        params = {"sandbox": self.id, "files": _put(files), **({"cwd": cwd} if cwd else {})}
        self._begin().call("put", params)

    def get(self, path: str, *, max: Optional[int] = None, cwd: Optional[str] = None) -> dict[str, bytes]:
        """Reads a file, the files of a directory, or those that a pattern names."""
        params = {"sandbox": self.id, "path": path, **({"max": max} if max else {}), **({"cwd": cwd} if cwd else {})}
        answer = self._begin().call("get", params)
        for f in answer["files"]:
            if f.get("error"):
                raise SandboxError(f["error"]["message"], f["error"]["code"], f["error"]["hint"])
        return {f["path"]: _content(f) for f in answer["files"]}

    def export(self, path: str, to: Union[str, "os.PathLike[str]"], *, max: Optional[int] = None) -> list[tuple[str, str]]:
        """Copies a file or directory to a new one of the host; gives what was left out, and why."""
        params = {"sandbox": self.id, "path": path, "to": os.path.abspath(os.fspath(to)), **({"max": max} if max else {})}
        return [(d["path"], d["why"]) for d in self._begin().call("get", params).get("dropped") or []]

    def write_file(self, path: str, content: Content) -> None:
        """Writes one file."""
        self.put({path: content})

    def read_file(self, path: str, *, max: Optional[int] = None) -> bytes:
        """Reads one file."""
        files = self.get(path, max=max)
        if len(files) != 1:
            raise SandboxError(f"{path!r} is no single file", "file_unusable")
        return next(iter(files.values()))

    def host_path(self, inside: str) -> Optional[str]:
        """The path of the host that a path inside stands for; None where there is none."""
        return self._begin().call("path", {"sandbox": self.id, "inside": inside}).get("host")

    def inside_path(self, host: str) -> Optional[str]:
        """Where a path of the host is inside; None where it is not shown."""
        return self._begin().call("path", {"sandbox": self.id, "host": os.path.abspath(host)}).get("inside")

    def dispose(self) -> None:
        """Ends the sandbox and everything in it. May be called again."""
        if self._made is not None and not self._disposed and self._client is not None:
            try:
                self._client.call("delete", {"sandbox": self._made["id"]})
            except Cancelled:
                pass
        self._disposed = True

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(self, *_: object) -> None:
        self.dispose()


class AsyncSandbox:
    """A Sandbox for asyncio. Cancelling a task that waits for ``exec`` ends the program."""

    kind = "sandboxrun"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.sync = Sandbox(*args, **kwargs)

    async def create(self) -> "AsyncSandbox":
        """Makes the sandbox, if it is not there yet."""
        await asyncio.to_thread(self.sync.create)
        return self

    @property
    def id(self) -> str:
        return str(self.sync._info()["id"])

    @property
    def isolated(self) -> bool:
        return bool(self.sync._info()["isolated"])

    @property
    def workdir(self) -> str:
        return str(self.sync._info()["workdir"])

    async def exec(self, argv: Sequence[str], **options: Any) -> ExecResult:
        """As Sandbox.exec."""
        if self.sync._made is None:
            await self.create()
        loop = asyncio.get_running_loop()
        finished: asyncio.Future[None] = loop.create_future()
        handle = ExecHandle(self.sync._begin(), options.get("on_output"))

        def wake(_: _Call) -> None:
            handle._finished.release()
            try:
                loop.call_soon_threadsafe(lambda: None if finished.done() else finished.set_result(None))
            except RuntimeError:  # the loop is closed
                pass

        handle._call._done = wake
        if options.get("put") or options.get("stdin"):  # what is long may have to wait
            await asyncio.to_thread(self.sync._send, handle, argv, options)
        else:
            self.sync._send(handle, argv, options)
        try:
            await finished
        except asyncio.CancelledError:
            await asyncio.shield(asyncio.to_thread(handle.cancel))
            raise
        return handle.wait(0)

    async def put(self, files: Mapping[str, Content], **options: Any) -> None:
        await asyncio.to_thread(lambda: self.sync.put(files, **options))

    async def get(self, path: str, **options: Any) -> dict[str, bytes]:
        return await asyncio.to_thread(lambda: self.sync.get(path, **options))

    async def export(self, path: str, to: Union[str, "os.PathLike[str]"], **options: Any) -> list[tuple[str, str]]:
        return await asyncio.to_thread(lambda: self.sync.export(path, to, **options))

    async def write_file(self, path: str, content: Content) -> None:
        await asyncio.to_thread(self.sync.write_file, path, content)

    async def read_file(self, path: str, **options: Any) -> bytes:
        return await asyncio.to_thread(lambda: self.sync.read_file(path, **options))

    async def host_path(self, inside: str) -> Optional[str]:
        return await asyncio.to_thread(self.sync.host_path, inside)

    async def inside_path(self, host: str) -> Optional[str]:
        return await asyncio.to_thread(self.sync.inside_path, host)

    async def dispose(self) -> None:
        await asyncio.to_thread(self.sync.dispose)

    async def __aenter__(self) -> "AsyncSandbox":
        return self

    async def __aexit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        await self.dispose()


class NullSandbox:
    """No sandbox. Everything that would run a program or move a file is refused, so a harness without one does nothing by mistake."""

    kind = "null"
    isolated = False
    workdir = ""

    def __init__(self, reason: str = "there is no sandbox") -> None:
        self.reason = reason

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise SandboxUnavailable(self.reason, "null_sandbox", "use Sandbox")

    create = start = exec = put = get = export = write_file = read_file = host_path = inside_path = _refuse

    def dispose(self) -> None:
        """Does nothing."""

    def __enter__(self) -> "NullSandbox":
        return self

    def __exit__(self, *_: object) -> None:
        pass
