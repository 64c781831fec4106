"""A sandbox for each run id, with files and timeouts: what an agent's tool calls need. State stays between calls of one run, and never leaks to another."""

from pathlib import Path

from sandboxrun import ExecResult, Sandbox

POLICY = str(Path(__file__).resolve().parent.parent / "llm" / "policy.toml")


class Runs:
    def __init__(self) -> None:
        self._boxes: dict[str, Sandbox] = {}

    def call(self, run_id: str, code: str, *, timeout: float = 10) -> ExecResult:
        box = self._boxes.setdefault(run_id, Sandbox(POLICY))
        return box.exec(["python3", "call.py"], put={"call.py": code}, timeout=timeout)

    def files(self, run_id: str) -> dict[str, bytes]:
        return self._boxes[run_id].get(".", max=16 << 20)

    def finish(self, run_id: str) -> None:
        self._boxes.pop(run_id).dispose()


if __name__ == "__main__":
    runs = Runs()
    assert runs.call("a", "open('note', 'w').write('from a'); print('ok')").stdout == "ok\n"
    assert runs.call("a", "print(open('note').read())").stdout == "from a\n"  # the run's files are still there
    assert runs.call("b", "import os; print(os.path.exists('note'))").stdout == "False\n"
    late = runs.call("b", "print('begun', flush=True)\nwhile True: pass", timeout=0.5)
    assert late.timed_out and late.stdout == "begun\n", late
    assert runs.files("a")["note"] == b"from a"
    runs.finish("a")
    runs.finish("b")
    print("runs: ok")
