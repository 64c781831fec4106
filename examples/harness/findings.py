"""Programs that a model wrote, each judged by how it ended. Every run has a fresh /tmp and home, so no program sees what another has left."""

from pathlib import Path

from sandboxrun import Sandbox

POLICY = str(Path(__file__).resolve().parent.parent / "learner" / "policy.toml")

PROGRAMS = {
    "good": ("print(sum(range(10)))", None),
    "fails": ("raise SystemExit(3)", "PROGRAM_FAILED"),
    "hangs": ("while True: pass", "WALL_CLOCK_EXCEEDED"),
    "talks": ("while True: print('x' * 1000)", "OUTPUT_EXCEEDED"),
    "leaves": ("open('/tmp/left', 'w').write('x'); import os; open(os.path.expanduser('~/left'), 'w')", None),
    "looks": ("import os; raise SystemExit(os.path.exists('/tmp/left') or os.path.exists(os.path.expanduser('~/left')))", None),
}

if __name__ == "__main__":
    with Sandbox(POLICY) as box:
        for name, (program, want) in PROGRAMS.items():
            done = box.exec(
                ["python3", "program.py"], put={"program.py": program}, fresh=["/tmp", "~"], timeout=1, on_output_limit="kill",
            )
            assert done.finding == want, (name, done)
    print("findings: ok")
