"""A kernel that lives on between cells, and named services that it may call: each service is a Unix socket of the harness's, forwarded to a port inside."""

import json
import os
import queue
import socket
import tempfile
import threading
from pathlib import Path

from sandboxrun import Sandbox

POLICY = str(Path(__file__).resolve().parent.parent / "llm" / "policy.toml")

KERNEL = """
import io, json, os, sys, traceback, contextlib
space = {}
for line in sys.stdin:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            exec(json.loads(line), space)
        except Exception:
            traceback.print_exc(limit=0, file=out)
    print(json.dumps(out.getvalue()), flush=True)
"""


class Kernel:
    def __init__(self, services: dict[str, str]) -> None:
        ports = {name: 9000 + i for i, name in enumerate(sorted(services))}
        self.box = Sandbox({
            "version": 1, "extends": POLICY,
            "network": {"ports": [f"{port}=unix:{services[name]}" for name, port in ports.items()]},
        })
        self._answers: "queue.Queue[str]" = queue.Queue()
        self._part = b""
        self._run = self.box.start(
            ["python3", "kernel.py"], put={"kernel.py": KERNEL}, stdin_open=True, on_output=self._hear,
            env={f"SERVICE_{name.upper()}": str(port) for name, port in ports.items()},
        )

    def _hear(self, stream: str, data: bytes) -> None:
        if stream == "stdout":
            *lines, self._part = (self._part + data).split(b"\n")
            for line in lines:
                self._answers.put(json.loads(line))

    def cell(self, code: str, timeout: float = 30) -> str:
        self._run.write(json.dumps(code) + "\n")
        return self._answers.get(timeout=timeout)

    def close(self) -> None:
        self._run.close_stdin()
        assert self._run.wait(30).ok
        self.box.dispose()


def serve_greeting(path: str) -> None:
    """A service of the harness's: answers one line."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()

    def answer() -> None:
        while True:
            conn, _ = server.accept()
            with conn:
                conn.sendall(b"hello " + conn.recv(100))

    threading.Thread(target=answer, daemon=True).start()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as tmp:
        serve_greeting(os.path.join(tmp, "greeting"))
        kernel = Kernel({"greeting": os.path.join(tmp, "greeting")})
        assert kernel.cell("x = 20") == ""
        assert kernel.cell("print(x + 1)") == "21\n"  # it remembers
        assert "ZeroDivisionError" in kernel.cell("1 / 0")  # and goes on
        said = kernel.cell("import os, socket\ns = socket.create_connection(('127.0.0.1', int(os.environ['SERVICE_GREETING'])))\n"
                           "s.sendall(b'cell'); print(s.recv(100).decode())")
        assert said == "hello cell\n", said
        assert "Error" in kernel.cell("socket.create_connection(('127.0.0.1', 9999), 2)")
        kernel.close()
    print("notebook: ok")
