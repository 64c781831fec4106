"""A workspace on disk in which code is generated. The answers lie in it, for those who work on the tasks, and are masked for the program: it cannot read, replace or
guess them. What it made is copied out, without links that lead elsewhere."""

import os
import shutil
import tempfile
from pathlib import Path

from sandboxrun import Sandbox

GENERATE = """
import os
for name in ("answers/one.py", "answers"):
    try:
        print(os.listdir(name) if os.path.isdir(name) else open(name).read())
    except OSError as e:
        print("masked:", type(e).__name__)
os.makedirs("src", exist_ok=True)
open("src/one.py", "w").write("def one():\\n    return 1\\n")
os.symlink("/etc/passwd", "src/sly.py")
"""

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as tmp:
        copy = Path(os.path.realpath(tmp), "codegen")
        shutil.copytree(Path(__file__).resolve().parent.parent / "codegen", copy)
        work = copy / "work"
        with Sandbox(str(copy / "policy.toml")) as box:
            made = box.exec(["python3", "generate.py"], put={"generate.py": GENERATE}, timeout=30).check()
            assert "SECRET" not in made.stdout and "masked" in made.stdout, made.stdout
            dropped = box.export("src", Path(tmp, "result"))
            assert [name for name, _ in dropped] == ["src/sly.py"], dropped
        assert sorted(os.listdir(Path(tmp, "result"))) == ["one.py"]
        assert (work / "answers/one.py").read_text() == "SECRET ANSWER\n"
    print("codegen: ok")
