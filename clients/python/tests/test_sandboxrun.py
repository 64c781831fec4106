"""Tests against the real command: SANDBOXRUN_BIN=... python3 -m unittest discover -s tests, in clients/python."""

import asyncio
import os
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from sandboxrun import (  # noqa: E402
    AsyncSandbox, Cancelled, Client, NullSandbox, Sandbox, SandboxError, SandboxUnavailable,
)

POLICY = {"version": 1, "workspace": {"source": "tmpfs", "path": "/w"}}


class Sync(unittest.TestCase):
    def setUp(self) -> None:
        self.client = Client()
        self.sb = Sandbox(POLICY, client=self.client)

    def tearDown(self) -> None:
        self.client.close()

    def test_exec(self) -> None:
        r = self.sb.exec(
            ["sh", "-c", 'cat in.txt -; echo made >out.txt; echo \'{"x": 1}\' >&3; echo err >&2; exit $CODE'],
            put={"in.txt": "typed ", "b/bin": b"\xff\x00"}, collect=["out.txt", "b/*", "none"], stdin="input", answer=True, env={"CODE": "3"},
        )
        self.assertEqual((r.stdout, r.stderr, r.exit_code, r.outcome, r.ok), ("typed input", "err\n", 3, "exited", False))
        self.assertEqual(r.files, {"out.txt": b"made\n", "b/bin": b"\xff\x00"})
        self.assertEqual(list(r.errors), ["none"])
        self.assertEqual(r.answer, b'{"x": 1}\n')
        with self.assertRaises(SandboxError) as caught:
            r.check()
        self.assertEqual(caught.exception.code, "PROGRAM_FAILED")
        self.assertEqual(self.sb.exec(["printf", r"\377"]).stdout_bytes, b"\xff")

    def test_properties(self) -> None:
        self.assertIsNone(self.sb._made)  # nothing is made until it is used
        self.assertTrue(self.sb.isolated)
        self.assertEqual((self.sb.kind, self.sb.workdir), ("sandboxrun", "/w"))
        self.assertTrue(self.sb.info["checks"])

    def test_timeout(self) -> None:
        r = self.sb.exec(["sh", "-c", "echo begun; sleep 300"], timeout=0.3)
        self.assertTrue(r.timed_out)
        self.assertEqual((r.outcome, r.exit_code, r.stdout), ("timeout", 124, "begun\n"))

    def test_warm(self) -> None:
        with Sandbox(POLICY, client=self.client, warm={"python3": 1}) as sb:
            for option, warm in (("-c", True), ("-Bc", False)):
                r = sb.exec(["python3", option, "print(6 * 7)"], warm=True).check()
                self.assertEqual((r.stdout, r.raw["warm"], "warm_why" in r.raw), ("42\n", warm, not warm))

    def test_limits(self) -> None:
        self.assertEqual(self.sb.exec(["sh", "-c", "yes"], on_output_limit="kill").outcome, "output_exceeded")

    def test_files(self) -> None:
        self.sb.write_file("d/a.txt", "A")
        self.sb.put({"d/b": b"\xfe"})
        self.assertEqual(self.sb.read_file("d/a.txt"), b"A")
        self.assertEqual(self.sb.get("d"), {"d/a.txt": b"A", "d/b": b"\xfe"})
        for bad in ("../x", "/etc/passwd", ""):
            with self.assertRaises(SandboxError) as caught:
                self.sb.read_file(bad)
            self.assertEqual(caught.exception.code, "path_invalid")
            with self.assertRaises(SandboxError):
                self.sb.write_file(bad, "x")
        with tempfile.TemporaryDirectory() as tmp:
            os.mkdir(tmp + "/tree")
            Path(tmp, "tree/f").write_text("F")
            self.sb.put({"t": Path(tmp, "tree")})
            self.sb.exec(["ln", "-s", "/etc", "t/l"]).check()
            dropped = self.sb.export("t", tmp + "/back")
            self.assertEqual(Path(tmp, "back/f").read_text(), "F")
            self.assertEqual([path for path, _ in dropped], ["t/l"])

    def test_paths(self) -> None:
        with tempfile.TemporaryDirectory() as tmp:
            tmp = os.path.realpath(tmp)
            sb = Sandbox({"version": 1, "workspace": {"source": tmp, "path": "/w"}}, client=self.client)
            sb.create()
            self.assertEqual(sb.inside_path(tmp + "/new"), "/w/new")
            self.assertEqual(sb.host_path("new"), tmp + "/new")
            self.assertIsNone(sb.host_path("/tmp"))
            sb.dispose()

    def test_streams_and_cancel(self) -> None:
        heard: list[bytes] = []
        handle = self.sb.start(["cat"], stdin_open=True, on_output=lambda name, data: heard.append(data))
        handle.write("one ")
        handle.write(b"\xff")
        handle.close_stdin()
        self.assertTrue(handle.wait(30).ok)
        self.assertEqual(b"".join(heard), b"one \xff")
        handle = self.sb.start(["sh", "-c", "echo begun; sleep 300 & wait"])
        with self.assertRaises(TimeoutError):
            handle.wait(0.3)
        handle.cancel()
        r = handle.wait(30)
        self.assertEqual((r.outcome, r.finding, r.exit_code, r.stdout), ("cancelled", "CANCELLED", 137, "begun\n"))
        handle.cancel()  # it has ended

    def test_threads(self) -> None:
        with ThreadPoolExecutor(8) as pool:
            done = list(pool.map(lambda i: self.sb.exec(["cat", f"f{i}"], put={f"f{i}": str(i)}).stdout, range(64)))
        self.assertEqual(done, [str(i) for i in range(64)])

    def test_errors(self) -> None:
        self.assertEqual(self.sb.exec(["no-such-program"]).exit_code, 127)
        with self.assertRaises(SandboxError) as caught:
            Sandbox({"version": 1, "nosuch": 1}, client=self.client).create()
        self.assertEqual(caught.exception.code, "policy_invalid")
        self.sb.create()
        self.sb.dispose()
        self.sb.dispose()
        with self.assertRaises(SandboxUnavailable):
            self.sb.exec(["true"])
        with self.assertRaises(SandboxUnavailable):
            Client("/no/such/sandboxrun")

    def test_address(self) -> None:
        with tempfile.TemporaryDirectory() as tmp:
            path = tmp + "/s"
            server = subprocess.Popen([os.environ["SANDBOXRUN_BIN"], "serve", "--socket", path])
            try:
                while not os.path.exists(path):
                    self.assertIsNone(server.poll())
                    time.sleep(0.01)
                with Client(address=path) as client, Sandbox(POLICY, client=client) as sb:
                    self.assertEqual(sb.exec(["echo", "there"]).stdout, "there\n")
                    handle = sb.start(["sleep", "300"])
                    client.close()
                    with self.assertRaises(Cancelled):
                        handle.wait(30)
            finally:
                server.terminate()
                server.wait()
            with self.assertRaises(SandboxUnavailable):
                Client(address=path)

    def test_closed(self) -> None:
        handle = self.sb.start(["sleep", "300"])
        threading.Timer(0.2, self.client.close).start()
        with self.assertRaises(Cancelled):
            handle.wait(30)

    def test_server_is_killed(self) -> None:
        handle = self.sb.start(["sleep", "300"])
        self.client._process.kill()
        with self.assertRaises(Cancelled):
            handle.wait(30)
        with self.assertRaises(Cancelled):
            self.sb.exec(["true"])


class Shared(unittest.TestCase):
    def test_ends_with_the_process(self) -> None:
        """Sandboxes that nobody has disposed of are gone when the process is, also where it was killed."""
        code = "import sys, os; sys.path.insert(0, sys.argv[1]); from sandboxrun import Sandbox\n" \
               "s = Sandbox({'version': 1, 'workspace': {'source': 'tmpfs', 'path': '/w'}}); print(s.id, flush=True)\n" \
               "sys.argv[2] == 'kill' and os.kill(os.getpid(), 9)"
        for how in ("exit", "kill"):
            out = subprocess.run([sys.executable, "-c", code, sys.path[0], how], stdout=subprocess.PIPE, text=True, check=False).stdout.strip()
            self.assertTrue(out.startswith("serve-"))
            for _ in range(200):
                left = subprocess.run([os.environ["SANDBOXRUN_BIN"], "list"], stdout=subprocess.PIPE, text=True, check=True).stdout
                if out not in left:
                    break
                time.sleep(0.05)
            self.assertNotIn(out, left)

    def test_null(self) -> None:
        with NullSandbox("none here") as null:
            self.assertEqual((null.kind, null.isolated), ("null", False))
            for refused in (lambda: null.exec(["true"]), lambda: null.write_file("a", "b"), lambda: null.read_file("a"), null.create):
                with self.assertRaisesRegex(SandboxUnavailable, "none here"):
                    refused()


class Async(unittest.IsolatedAsyncioTestCase):
    async def test_exec(self) -> None:
        async with AsyncSandbox(POLICY) as sb:
            done = await asyncio.gather(*(sb.exec(["cat", f"f{i}"], put={f"f{i}": str(i)}) for i in range(16)))
            self.assertEqual([r.stdout for r in done], [str(i) for i in range(16)])
            await sb.write_file("x", "X")
            self.assertEqual(await sb.read_file("x"), b"X")
            self.assertTrue(sb.isolated)

    async def test_cancel(self) -> None:
        async with AsyncSandbox(POLICY) as sb:
            with self.assertRaises((asyncio.TimeoutError, TimeoutError)):
                await asyncio.wait_for(sb.exec(["sh", "-c", "sleep 300"]), 0.3)
            ps = await sb.exec(["sh", "-c", "ls /proc | grep -c '^[0-9]'"])
            self.assertLess(int(ps.stdout), 6)


if __name__ == "__main__":
    unittest.main()
