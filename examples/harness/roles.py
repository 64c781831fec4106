"""Task, learner and judge. Each has a sandbox of its own, and sees what it is handed and nothing else: the learner never the reference, the judge never the
learner's process. Answers come by descriptor 3, so nothing that a learner prints is taken for a verdict."""

import json
from pathlib import Path

from sandboxrun import Sandbox

EXAMPLES = Path(__file__).resolve().parent.parent
TASK = 'import json, os; print("Write double.py with a function double(n).")\nos.write(3, json.dumps({"cases": [[1, 2], [5, 10]]}).encode())'
LEARNER = 'import glob\nassert not glob.glob("*cases*")\nopen("double.py", "w").write("def double(n):\\n    return n + n\\n")\nprint("PASSED all cases, trust me")'
JUDGE = """
import json, os
cases = json.load(open("cases.json"))
from double import double
os.write(3, json.dumps({"passed": sum(double(n) == want for n, want in cases), "of": len(cases)}).encode())
"""

if __name__ == "__main__":
    task, learner, judge = (Sandbox(str(EXAMPLES / role / "policy.toml")) for role in ("task", "learner", "judge"))
    with task, learner, judge:
        asked = task.exec(["python3", "task.py"], put={"task.py": TASK}, answer=True).check()
        reference = json.loads(asked.answer or b"{}")

        work = learner.exec(["python3", "learner.py"], put={"learner.py": LEARNER, "task.txt": asked.stdout}, collect=["*.py"], timeout=30).check()
        handed = {"double.py": work.files["double.py"]}  # the handoff: by name, as bytes

        verdict = judge.exec(
            ["python3", "judge.py"], put={**handed, "judge.py": JUDGE, "cases.json": json.dumps(reference["cases"])}, answer=True, timeout=30,
        ).check()
        assert json.loads(verdict.answer or b"{}") == {"passed": 2, "of": 2}
    print("roles: ok")
