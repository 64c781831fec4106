// Run programs that nobody has read, in sandboxes of the `sandboxrun` command. Node's standard library alone. sandboxrun.d.ts has the types and says what each
// part does; docs/serve.md what the command answers.
import { spawn } from "node:child_process";
import { connect } from "node:net";
import { isAbsolute, resolve } from "node:path";
import process from "node:process";

export class SandboxError extends Error {
  constructor(message, code = "failed", hint = "") {
    super(message);
    this.name = "SandboxError";
    this.code = code;
    this.hint = hint;
  }
}

const codes = new Map([[-32601, "unknown_method"], [-32602, "usage"], [-32001, "busy"]]);

function failure(e) {
  return new SandboxError(e.message, e.data?.code ?? codes.get(e.code) ?? "failed", e.data?.hint ?? "");
}

export class Client {
  #server;
  #input;
  #output;
  #calls = new Map();
  #last = 0;
  #gone = null;
  #part = [];
  #ended;

  constructor({ path = process.env.SANDBOXRUN_BIN || "sandboxrun", root, env, address } = {}) {
    if (address) {
      const socket = connect(address);
      this.#begins(socket, socket, socket, `connect to ${JSON.stringify(address)}`, "no_server", "");
      return;
    }
    const args = [...(root ? ["--root", root] : []), "serve", "--stdio"];
    const server = spawn(path, args, { stdio: ["pipe", "pipe", "inherit"], env: env ?? process.env });
    this.#begins(server, server.stdin, server.stdout, `start ${path}`, "not_installed", "put sandboxrun in PATH, or set SANDBOXRUN_BIN");
  }

  #begins(server, input, output, what, code, hint) {
    [this.#server, this.#input, this.#output] = [server, input, output];
    this.#ended = new Promise((done) => {
      server.on("error", (e) => {
        this.#fail(new SandboxError(`${what}: ${e.message}`, code, hint));
        done();
      });
      server.on("close", () => {
        this.#fail(new SandboxError("the sandboxrun server has ended", "server_ended"));
        done();
      });
    });
    input.on("error", () => {}); // its end is seen by "close"
    output.on("data", (data) => this.#take(data));
    this.#keep(false);
  }

  // Nothing that waits for no answer keeps Node from ending, and with Node the server.
  #keep(waits) {
    for (const x of [this.#server, this.#input, this.#output]) waits ? x.ref?.() : x.unref?.();
  }

  #take(data) {
    for (let at; (at = data.indexOf(10)) >= 0; data = data.subarray(at + 1)) {
      const line = Buffer.concat([...this.#part, data.subarray(0, at)]);
      this.#part = [];
      this.#hear(JSON.parse(line.toString()));
    }
    if (data.length > 0) this.#part.push(data);
  }

  #hear(message) {
    if (message.method === "exec/output") {
      const { id, stream, data, base64 } = message.params;
      this.#calls.get(id)?.onOutput?.(stream, base64 === undefined ? Buffer.from(data) : Buffer.from(base64, "base64"));
      return;
    }
    const call = this.#calls.get(message.id);
    this.#calls.delete(message.id);
    if (this.#calls.size === 0) this.#keep(false);
    if (call) message.error ? call.reject(failure(message.error)) : call.resolve(message.result);
  }

  #fail(error) {
    this.#gone ??= error;
    const calls = [...this.#calls.values()];
    this.#calls.clear();
    for (const call of calls) call.reject(this.#gone);
  }

  /** Sends a request; gives its id and the promise of its answer. */
  begin(method, params, onOutput) {
    const id = ++this.#last;
    const answer = new Promise((resolve, reject) => {
      if (this.#gone) return reject(this.#gone);
      this.#calls.set(id, { resolve, reject, onOutput });
      this.#keep(true);
      this.#input.write(JSON.stringify({ jsonrpc: "2.0", id, method, params }) + "\n");
    });
    return { id, answer };
  }

  call(method, params = {}) {
    return this.begin(method, params).answer;
  }

  async close() {
    this.#input.end();
    this.#keep(true);
    await this.#ended;
  }
}

let shared = null;

function sharedClient() {
  return (shared ??= new Client());
}

function contents(files) {
  const out = {};
  for (const [name, content] of Object.entries(files ?? {})) {
    if (typeof content === "string") out[name] = content;
    else if (content instanceof Uint8Array) out[name] = { base64: Buffer.from(content).toString("base64") };
    else out[name] = { file: resolve(content.file) };
  }
  return out;
}

function content(item) {
  return item.base64 ? Buffer.from(item.base64, "base64") : Buffer.from(item.text ?? "");
}

function resultOf(raw) {
  const files = {}, errors = {};
  for (const f of raw.collected ?? []) {
    if (f.error) errors[f.path] = f.error.message;
    else if (!f.to) files[f.path] = content(f);
  }
  return {
    outcome: raw.outcome, exitCode: raw.exit_code, ok: raw.outcome === "exited" && raw.exit_code === 0, signal: raw.signal,
    timedOut: raw.timed_out, finding: raw.finding, stdout: raw.stdout, stderr: raw.stderr,
    stdoutBytes: raw.stdout_base64 ? Buffer.from(raw.stdout_base64, "base64") : Buffer.from(raw.stdout),
    answer: raw.answer ? content(raw.answer) : null, files, errors, dropped: raw.dropped ?? [], raw,
  };
}

class Running {
  #client;
  #id;
  result;

  constructor(client, { id, answer }, signal) {
    this.#client = client;
    this.#id = id;
    const abort = () => this.cancel().catch(() => {}); // it may have ended
    this.result = answer.then(resultOf).finally(() => signal?.removeEventListener("abort", abort)).then((r) => {
      if (signal?.aborted && r.outcome === "cancelled") throw signal.reason;
      return r;
    });
    this.result.catch(() => {}); // who waits hears of it
    if (signal?.aborted) abort();
    else signal?.addEventListener("abort", abort, { once: true });
  }

  async write(data) {
    await this.#client.call("exec/stdin", { id: this.#id, base64: Buffer.from(data).toString("base64") });
  }

  async closeStdin() {
    await this.#client.call("exec/stdin", { id: this.#id, eof: true });
  }

  async resize(rows, cols) {
    await this.#client.call("exec/resize", { id: this.#id, rows, cols });
  }

  async cancel() {
    await this.#client.call("cancel", { id: this.#id });
  }
}

export class Sandbox {
  kind = "sandboxrun";
  #params;
  #given;
  #made = null;
  #info = null;
  #disposed = false;

  constructor({ policy, policyText, read, write, bind, deny, allowHost, id, record, warm, client } = {}) {
    this.#params = { policy, policy_text: policyText, read, write, bind, deny, allow_host: allowHost, id, record, warm };
    this.#given = client;
  }

  get #client() {
    return (this.#given ??= sharedClient());
  }

  /** Makes the sandbox, if it is not there yet. */
  async create() {
    if (this.#disposed) throw new SandboxError("the sandbox is disposed", "disposed");
    this.#made ??= this.#client.call("create", this.#params);
    this.#info = await this.#made;
    return this.#info;
  }

  get info() {
    if (!this.#info) throw new SandboxError("the sandbox has not been used yet", "not_created");
    return this.#info;
  }

  get isolated() {
    return this.info.isolated;
  }

  get workdir() {
    return this.info.workdir;
  }

  async start(argv, { put, collect, fresh, view, read, bind, deny, env, cwd, stdin, stdinOpen, timeout, memory, pids, answer, onOutput, onOutputLimit, tty, warm, signal } = {}) {
    signal?.throwIfAborted();
    const { id } = await this.create();
    signal?.throwIfAborted();
    const params = {
      sandbox: id, argv, put: put && contents(put), collect, fresh, view, read, bind, deny, env, cwd, stdin_open: stdinOpen, timeout, memory, pids, answer, tty, warm,
      on_output_limit: onOutputLimit, stream: onOutput !== undefined,
    };
    if (typeof stdin === "string") params.stdin = stdin;
    else if (stdin !== undefined) params.stdin_base64 = Buffer.from(stdin).toString("base64");
    return new Running(this.#client, this.#client.begin("exec", params, onOutput), signal);
  }

  async exec(argv, options) {
    return (await this.start(argv, options)).result;
  }

  async put(files, { cwd } = {}) {
    const { id } = await this.create();
    await this.#client.call("put", { sandbox: id, files: contents(files), cwd });
  }

  async get(path, { max, cwd } = {}) {
    const { id } = await this.create();
    const files = {};
    for (const f of (await this.#client.call("get", { sandbox: id, path, max, cwd })).files) {
      if (f.error) throw new SandboxError(f.error.message, f.error.code, f.error.hint);
      files[f.path] = content(f);
    }
    return files;
  }

  async export(path, to, { max } = {}) {
    const { id } = await this.create();
    return (await this.#client.call("get", { sandbox: id, path, max, to: isAbsolute(to) ? to : resolve(to) })).dropped ?? [];
  }

  /** The path of the host that a path inside stands for; null where there is none. */
  async hostPath(inside) {
    return this.#path({ inside }, "host");
  }

  /** Where a path of the host is inside; null where it is not shown. */
  async insidePath(host) {
    return this.#path({ host: resolve(host) }, "inside");
  }

  async #path(params, want) {
    const { id } = await this.create();
    return (await this.#client.call("path", { sandbox: id, ...params }))[want] ?? null;
  }

  async writeFile(path, data) {
    await this.put({ [path]: data });
  }

  async readFile(path, options) {
    const list = Object.values(await this.get(path, options));
    if (list.length !== 1) throw new SandboxError(`${JSON.stringify(path)} is no single file`, "file_unusable");
    return list[0];
  }

  async dispose() {
    if (this.#disposed) return;
    this.#disposed = true;
    if (!this.#made) return;
    try {
      const { id } = await this.#made;
      await this.#client.call("delete", { sandbox: id });
    } catch (e) {
      if (e.code !== "server_ended" && this.#info) throw e; // else there is none
    }
  }

  async [Symbol.asyncDispose ?? Symbol.for("asyncDispose")]() {
    await this.dispose();
  }
}

export class NullSandbox {
  kind = "null";
  isolated = false;
  workdir = "";
  #reason;

  constructor(reason = "there is no sandbox") {
    this.#reason = reason;
    for (const name of ["create", "start", "exec", "put", "get", "export", "writeFile", "readFile", "hostPath", "insidePath"]) this[name] = () => this.#refuse();
  }

  async #refuse() {
    throw new SandboxError(this.#reason, "null_sandbox", "use Sandbox");
  }

  async dispose() {}
}
