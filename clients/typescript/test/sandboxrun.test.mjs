// Tests against the real command: SANDBOXRUN_BIN=... node --test test/
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { Client, NullSandbox, Sandbox, SandboxError } from "../sandboxrun.mjs";

const policy = { version: 1, workspace: { source: "tmpfs", path: "/w" } };
const client = new Client();
const sandbox = new Sandbox({ policy, client });
after(() => client.close());

const code = (expected) => (e) => e instanceof SandboxError && e.code === expected;

test("exec", async () => {
  const r = await sandbox.exec(["sh", "-c", "cat in -; echo made >out; echo yes >&3; exit $CODE"], {
    put: { in: "typed ", "b/bin": new Uint8Array([255, 0]) }, collect: ["out", "b/*", "none"], stdin: "input", answer: true, env: { CODE: "3" },
  });
  assert.equal(r.stdout, "typed input");
  assert.deepEqual([r.exitCode, r.ok, r.outcome, String(r.answer)], [3, false, "exited", "yes\n"]);
  assert.equal(String(r.files.out), "made\n");
  assert.deepEqual([...r.files["b/bin"]], [255, 0]);
  assert.deepEqual(Object.keys(r.errors), ["none"]);
  assert.deepEqual([sandbox.kind, sandbox.isolated, sandbox.workdir], ["sandboxrun", true, "/w"]);
});

test("warm", async () => {
  const warmed = new Sandbox({ policy, client, warm: { python3: 1 } });
  for (const [option, warm] of [["-c", true], ["-Bc", false]]) {
    const r = await warmed.exec(["python3", option, "print(6 * 7)"], { warm: true });
    assert.deepEqual([r.stdout, r.raw.warm, "warm_why" in r.raw], ["42\n", warm, !warm]);
  }
  await warmed.dispose();
});

test("timeout and abort", async () => {
  const late = await sandbox.exec(["sh", "-c", "echo begun; sleep 300"], { timeout: 0.3 });
  assert.deepEqual([late.timedOut, late.stdout], [true, "begun\n"]);
  await assert.rejects(sandbox.exec(["sleep", "300"], { signal: AbortSignal.timeout(300) }), { name: "TimeoutError" });
  await assert.rejects(sandbox.exec(["true"], { signal: AbortSignal.abort() }), { name: "AbortError" });
});

test("streams", async () => {
  let heard = "";
  const run = await sandbox.start(["cat"], { stdinOpen: true, onOutput: (_, data) => (heard += data) });
  await run.write("one ");
  await run.write("two");
  await run.closeStdin();
  assert.ok((await run.result).ok);
  assert.equal(heard, "one two");
  const endless = await sandbox.start(["sh", "-c", "echo begun; sleep 300"]);
  setTimeout(() => endless.cancel(), 200);
  assert.equal((await endless.result).outcome, "cancelled");
});

test("paths", async () => {
  const dir = realpathSync(mkdtempSync(join(tmpdir(), "sandboxrun-")));
  const other = new Sandbox({ policy: { version: 1, workspace: { source: dir, path: "/w" } }, client });
  try {
    assert.equal(await other.insidePath(join(dir, "new")), "/w/new");
    assert.equal(await other.hostPath("new"), join(dir, "new"));
    assert.equal(await other.insidePath("/root/x"), null);
  } finally {
    await other.dispose();
    rmSync(dir, { recursive: true });
  }
});

test("files", async () => {
  await sandbox.writeFile("d/a", "A");
  assert.equal(String(await sandbox.readFile("d/a")), "A");
  for (const bad of ["../x", "/etc/passwd", ""]) {
    await assert.rejects(sandbox.readFile(bad), code("path_invalid"));
    await assert.rejects(sandbox.writeFile(bad, "x"), code("path_invalid"));
  }
  const dir = mkdtempSync(join(tmpdir(), "sandboxrun-"));
  try {
    writeFileSync(join(dir, "f"), "F");
    await sandbox.put({ "d/f": { file: join(dir, "f") } });
    await sandbox.exec(["ln", "-s", "/etc", "d/l"]);
    const dropped = await sandbox.export("d", join(dir, "back"));
    assert.equal(readFileSync(join(dir, "back", "f"), "utf8"), "F");
    assert.deepEqual(dropped.map((d) => d.path), ["d/l"]);
  } finally {
    rmSync(dir, { recursive: true });
  }
});

test("many at once", async () => {
  const all = await Promise.all(Array.from({ length: 32 }, (_, i) => sandbox.exec(["echo", String(i)])));
  assert.deepEqual(all.map((r) => r.stdout), Array.from({ length: 32 }, (_, i) => `${i}\n`));
});

test("errors", async () => {
  assert.equal((await sandbox.exec(["no-such-program"])).exitCode, 127);
  await assert.rejects(new Sandbox({ policy: { version: 1, nosuch: 1 }, client }).create(), code("policy_invalid"));
  const other = new Sandbox({ policy, client });
  await other.create();
  await other.dispose();
  await other.dispose();
  await assert.rejects(other.exec(["true"]), code("disposed"));
  await assert.rejects(new Client({ path: "/no/such/sandboxrun" }).call("list"), code("not_installed"));
  const none = new NullSandbox("none here");
  await assert.rejects(none.exec(["true"]), /none here/);
  await assert.rejects(none.readFile("x"), code("null_sandbox"));
  assert.equal(none.isolated, false);
});

test("address", async () => {
  const dir = mkdtempSync(join(tmpdir(), "sandboxrun-"));
  const path = join(dir, "s");
  const server = spawn(process.env.SANDBOXRUN_BIN, ["serve", "--socket", path], { stdio: "inherit" });
  try {
    while (!existsSync(path)) await new Promise((done) => setTimeout(done, 10));
    const other = new Client({ address: { path } });
    const there = new Sandbox({ policy, client: other });
    assert.equal((await there.exec(["echo", "there"])).stdout, "there\n");
    await there.dispose();
    await other.close();
  } finally {
    server.kill();
    rmSync(dir, { recursive: true });
  }
  await assert.rejects(new Client({ address: { path } }).call("list"), code("no_server"));
});

test("nothing is left of a process that ends, or is killed", async () => {
  const script = `import { Sandbox } from ${JSON.stringify(new URL("../sandboxrun.mjs", import.meta.url).href)};
    const s = new Sandbox({ policy: ${JSON.stringify(policy)} });
    console.log((await s.create()).id);
    if (process.argv[2] === "kill") process.kill(process.pid, "SIGKILL");`;
  const dir = mkdtempSync(join(tmpdir(), "sandboxrun-"));
  try {
    writeFileSync(join(dir, "x.mjs"), script);
    for (const how of ["end", "kill"]) {
      const id = spawnSync(process.execPath, [join(dir, "x.mjs"), how], { encoding: "utf8", timeout: 60_000 }).stdout.trim();
      assert.match(id, /^serve-/);
      let left = id;
      for (let i = 0; i < 200 && left.includes(id); i++) {
        await new Promise((done) => setTimeout(done, 50));
        left = spawnSync(process.env.SANDBOXRUN_BIN, ["list"], { encoding: "utf8" }).stdout;
      }
      assert.ok(!left.includes(id), left);
    }
  } finally {
    rmSync(dir, { recursive: true });
  }
});
