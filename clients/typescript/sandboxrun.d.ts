/** What is put: a text, bytes, or a file or directory of the host. */
export type Content = string | Uint8Array | { file: string };

/** Something that could not be done, with a stable code and a hint. */
export class SandboxError extends Error {
  constructor(message: string, code?: string, hint?: string);
  readonly code: string;
  readonly hint: string;
}

/**
 * A `sandboxrun serve --stdio`, a process of its own, or a connection to the server at an address: the path of its socket, or the port of one that
 * is forwarded. It ends with this process, and every sandbox with it.
 */
export class Client {
  constructor(options?: { path?: string; root?: string; env?: NodeJS.ProcessEnv; address?: { path: string } | { port: number; host?: string } });
  call(method: string, params?: object): Promise<any>;
  begin(method: string, params: object, onOutput?: OnOutput): { id: number; answer: Promise<any> };
  /** Ends every sandbox of this client. */
  close(): Promise<void>;
}

export type OnOutput = (stream: "stdout" | "stderr", data: Buffer) => void;

/** Paths of the host, as the options of `sandboxrun create`. */
export interface SandboxOptions {
  /** The name of a preset, the path of a policy file, or the policy itself. */
  policy?: string | object;
  /** The policy itself, TOML or JSON. */
  policyText?: string;
  read?: string[];
  write?: string[];
  bind?: string[];
  deny?: string[];
  allowHost?: string[];
  id?: string;
  record?: string;
  /** How many interpreters are kept ready, by their names: { python3: 2 }. */
  warm?: Record<string, number>;
  /** All sandboxes share one unless they are given another. */
  client?: Client;
}

export interface Collect {
  path: string;
  max?: number;
  to?: string;
}

export interface ExecOptions {
  /** Files to write first, relative to the working directory. */
  put?: Record<string, Content>;
  /** Paths and patterns to read in the end: `files` of the result. */
  collect?: (string | Collect)[];
  /** Directories that are empty for this program and gone after it. */
  fresh?: string[];
  /** A view of the policy: what this program alone sees besides, or does not see. */
  view?: string;
  /** Paths of the host that this program alone sees besides, read-only. */
  read?: string[];
  /** The same at other paths: SOURCE:TARGET. */
  bind?: string[];
  /** Paths of the host that are hidden from this program alone. */
  deny?: string[];
  env?: Record<string, string>;
  cwd?: string;
  stdin?: string | Uint8Array;
  /** Input comes by `write`. */
  stdinOpen?: boolean;
  /** Seconds. */
  timeout?: number;
  /** Bytes. */
  memory?: number;
  pids?: number;
  /** File descriptor 3, $SANDBOXRUN_RESULT: `answer` of the result. */
  answer?: boolean;
  /** Output as it comes; it is then not kept. */
  onOutput?: OnOutput;
  onOutputLimit?: "truncate" | "kill";
  tty?: { rows: number; cols: number };
  /** The program may have a python3 that was started ahead: `raw.warm` says whether it had, `raw.warm_why` why not. */
  warm?: boolean;
  /** Its abort ends the program and all that it has started; `result` is then rejected with its reason. */
  signal?: AbortSignal;
}

export interface Dropped {
  path: string;
  why: string;
}

export interface ExecResult {
  outcome: string;
  exitCode: number;
  /** It exited with 0. */
  ok: boolean;
  signal: string | null;
  timedOut: boolean;
  finding: string | null;
  stdout: string;
  stderr: string;
  stdoutBytes: Buffer;
  answer: Buffer | null;
  files: Record<string, Buffer>;
  /** Why others were not collected, by path. */
  errors: Record<string, string>;
  dropped: Dropped[];
  /** All that docs/result.md says. */
  raw: any;
}

/** A program that runs. */
export interface Running {
  readonly result: Promise<ExecResult>;
  write(data: string | Uint8Array): Promise<void>;
  closeStdin(): Promise<void>;
  resize(rows: number, cols: number): Promise<void>;
  cancel(): Promise<void>;
}

export interface AnySandbox {
  readonly kind: string;
  readonly isolated: boolean;
  readonly workdir: string;
  exec(argv: string[], options?: ExecOptions): Promise<ExecResult>;
  start(argv: string[], options?: ExecOptions): Promise<Running>;
  put(files: Record<string, Content>, options?: { cwd?: string }): Promise<void>;
  get(path: string, options?: { max?: number; cwd?: string }): Promise<Record<string, Buffer>>;
  /** Copies a file or directory to a new one of the host; gives what was left out. */
  export(path: string, to: string, options?: { max?: number }): Promise<Dropped[]>;
  writeFile(path: string, data: Content): Promise<void>;
  readFile(path: string, options?: { max?: number; cwd?: string }): Promise<Buffer>;
  /** The path of the host that a path inside stands for; null where there is none. Nothing needs to be there yet. */
  hostPath(inside: string): Promise<string | null>;
  /** Where a path of the host is inside; null where it is not shown. */
  insidePath(host: string): Promise<string | null>;
  dispose(): Promise<void>;
}

/** A sandbox. It is made when it is first used; `isolated`, `workdir` and `info` are there from then on. */
export class Sandbox {
  constructor(options?: SandboxOptions);
  create(): Promise<any>;
  readonly info: any;
}
export interface Sandbox extends AnySandbox {
  readonly kind: "sandboxrun";
}

/** No sandbox: everything that would run a program or move a file is refused. */
export class NullSandbox {
  constructor(reason?: string);
}
export interface NullSandbox extends AnySandbox {
  readonly kind: "null";
  readonly isolated: false;
}
