package fault

import "slices"

// Codes of errors. A code never changes its meaning: programs read it.
const (
	UsageCode            = "usage"
	PolicyInvalid        = "policy_invalid"
	GrantMissing         = "grant_missing"
	GrantHoldsSecret     = "grant_holds_secret"
	GrantHoldsTrusted    = "grant_holds_trusted"
	KeyGranted           = "key_granted"
	GrantNotIdmapped     = "grant_not_idmapped"
	ProgramIsRoot        = "program_is_root"
	LimitUnenforceable   = "limit_unenforceable"
	UsernsDenied         = "userns_denied"
	NamespacesDenied     = "namespaces_denied"
	MountDenied          = "mount_denied"
	NetnsDenied          = "netns_denied"
	ProcDenied           = "proc_denied"
	CapabilityMissing    = "capability_missing"
	GrantReplaced        = "grant_replaced"
	IsolationCheckFailed = "isolation_check_failed"
	IDInvalid            = "id_invalid"
	IDInUse              = "id_in_use"
	NotFound             = "not_found"
	NotReady             = "not_ready"
	SandboxLost          = "sandbox_lost"
	StateChanged         = "state_changed"
	StateExposed         = "state_exposed"
	ProgramNotFound      = "program_not_found"
	InterpreterMissing   = "interpreter_missing"
	ProgramNotExecutable = "program_not_executable"
	InterpreterRelative  = "interpreter_relative"
	GuardUnsupported     = "guard_unsupported"
	CwdMissing           = "cwd_missing"
	ArgumentsTooLong     = "arguments_too_long"
	ExecNotFound         = "exec_not_found"
	WaitTimeout          = "wait_timeout"
	InputFailed          = "input_failed"
	OutputFailed         = "output_failed"
	OutputExists         = "output_exists"
	OutputDirGranted     = "output_dir_granted"
	OutputDirUnusable    = "output_dir_unusable"
	PathInvalid          = "path_invalid"
	FileTooLarge         = "file_too_large"
	FileUnusable         = "file_unusable"
	PutFailed            = "put_failed"
	FreshUnusable        = "fresh_unusable"
	ViewUnknown          = "view_unknown"
	ViewTarget           = "view_target"
	ViewUnreadable       = "view_unreadable"
	WorkspaceUnusable    = "workspace_unusable"
	RecordEdited         = "record_edited"
	RecordRemoved        = "record_removed"
	RecordReordered      = "record_reordered"
	RecordRepeated       = "record_repeated"
	RecordReplaced       = "record_replaced"
	RecordForeignLine    = "record_foreign_line"
	RecordBadJSON        = "record_bad_json"
	RecordUnknownEvent   = "record_unknown_event"
	RecordOrder          = "record_order"
	RecordCut            = "record_cut"
	RecordGrown          = "record_grown"
	RecordSwapped        = "record_swapped"
	RecordWrongPolicy    = "record_wrong_policy"
	RecordBadSignature   = "record_bad_signature"
	RecordNotSigned      = "record_not_signed"
	RecordFormat         = "record_format"
	RecordUnfinished     = "record_unfinished"
	RecordTorn           = "record_torn"
	RecordUntold         = "record_untold"
	RecordEmpty          = "record_empty"
	CheckBroken          = "check_broken"
	SandboxLeftovers     = "sandbox_litter"
	SandboxOrphans       = "sandbox_orphans"
	RecordUnusable       = "record_unusable"
	LimitReached         = "limit_reached"
	BeyondCeiling        = "beyond_ceiling"
	NoKeys               = "no_keys"
	OwnerGone            = "owner_gone"
	NoTerminal           = "no_terminal"
	DenyUnchecked        = "deny_unchecked"
	StateUnusable        = "state_unusable"
	SandboxUnavailable   = "sandbox_unavailable"
	Failed               = "failed"
)

// Exit statuses of a command that has failed. Every other status is the program's.
const (
	ExitRefused       = 1 // verify: the record is not good; redact: a value is left; path: no name on the other side; doctor: the default policy cannot be enforced; explain: not inside
	ExitLauncher      = 125
	ExitNotExecutable = 126
	ExitNotFound      = 127
)

// Entry is what some codes have in common.
type Entry struct {
	Codes   []string
	Status  int    // exit status
	Meaning string // in the markdown of the manual page
}

// Table has every code of an error, with its exit status and its meaning, in the order of the manual page.
func Table() []Entry {
	return []Entry{
		{[]string{UsageCode}, ExitLauncher, "The command line is wrong."},
		{
			[]string{PolicyInvalid, GrantMissing, GrantHoldsSecret},
			ExitLauncher,
			"The policy has a fault, grants a path that does not exist, or grants a path that it calls a secret.",
		},
		{
			[]string{GrantHoldsTrusted, KeyGranted},
			ExitLauncher,
			"A grant would give the program what the launcher trusts: a state directory, the policy, the **sandboxrun** binary, or a signing " +
				"key. docs/security.md has the list. A grant above a state directory is not an error: the launcher masks the state directory.",
		},
		{
			[]string{GrantNotIdmapped, ProgramIsRoot},
			ExitLauncher,
			"The launcher is root, and the program would be root on the host too: a writable grant is on a file system without idmapped " +
				"mounts, or the launcher cannot give the program another id.",
		},
		{[]string{LimitUnenforceable}, ExitLauncher, "Nothing on this machine enforces a limit of the policy. The message says why."},
		{
			[]string{UsernsDenied, NamespacesDenied, MountDenied, NetnsDenied, ProcDenied},
			ExitLauncher,
			"This machine does not allow a step that every sandbox needs. Nothing runs, even with **enforce = \"best_effort\"**; the message " +
				"then lists the steps that are missing. **doctor** says the same.",
		},
		{
			[]string{CapabilityMissing},
			ExitLauncher,
			"The launcher is root, and lacks a capability that root needs to make a sandbox. The message names the capability.",
		},
		{
			[]string{GrantReplaced},
			ExitLauncher,
			"Somebody replaced, moved or removed a writable directory of the sandbox on the host. Nothing ran, because the program's files " +
				"would be lost.",
		},
		{
			[]string{IsolationCheckFailed},
			ExitLauncher,
			"The sandbox is not as isolated as planned. The message names the check; docs/security.md has the table of checks. No program " +
				"ran.",
		},
		{
			[]string{ViewUnknown, ViewTarget, ViewUnreadable},
			ExitLauncher,
			"What one exec alone is to see: the policy has no such view; or it cannot be mounted at its target, or the program could not read it there.",
		},
		{
			[]string{WorkspaceUnusable},
			ExitLauncher,
			"What is to be made on disk for a sandbox, a workspace or a copy, could not be made or removed.",
		},
		{
			[]string{IDInvalid, IDInUse, NotFound, NotReady, SandboxLost},
			ExitLauncher,
			"The *ID* is not valid, already exists, or does not exist; its sandbox is not ready yet, or has ended.",
		},
		{
			[]string{StateChanged},
			ExitLauncher,
			"Somebody changed the sandbox's state directory after **create**. Nothing ran. **delete** still ends the sandbox.",
		},
		{
			[]string{StateExposed},
			ExitLauncher,
			"Programs of a running sandbox can write the state directory. Either somebody removed or moved the directory while that sandbox " +
				"masked it, or it was made in a directory that the sandbox can write. **sandboxrun** makes no sandbox there. The message names " +
				"process 1 of the running sandbox.",
		},
		{[]string{ProgramNotFound, InterpreterMissing}, ExitNotFound, "The sandbox does not have the program, or its interpreter or loader."},
		{
			[]string{ProgramNotExecutable, InterpreterRelative},
			ExitNotExecutable,
			"The program is there and cannot be executed, or names its interpreter by a relative path.",
		},
		{
			[]string{CwdMissing, ArgumentsTooLong},
			ExitLauncher,
			"The program cannot be started: its working directory is not in the sandbox, or its arguments and variables are too long.",
		},
		{[]string{ExecNotFound, WaitTimeout}, ExitLauncher, "The detached exec does not exist, or did not end in time."},
		{[]string{InputFailed, OutputFailed}, ExitLauncher, "Standard input could not be read to its end, or output could not be written."},
		{
			[]string{OutputExists, OutputDirGranted, OutputDirUnusable},
			ExitLauncher,
			"The output or the result cannot be written where **--output-dir** or **--result** says: a file is already there, the program " +
				"could see the place, or another reason.",
		},
		{
			[]string{PathInvalid, FileTooLarge, FileUnusable, PutFailed, FreshUnusable},
			ExitLauncher,
			"A file cannot go in or out: its path leaves the working directory, it is larger than allowed, it is missing or no regular file, " +
				"or the program could not write it; or a directory of **--fresh** cannot be made.",
		},
		{[]string{NoKeys}, ExitLauncher, "Of **redact**: no variable is a key, so nothing could be found."},
		{
			[]string{RecordEdited, RecordRemoved, RecordReordered, RecordRepeated, RecordReplaced, RecordForeignLine},
			ExitRefused,
			"Of **verify**: somebody edited, removed, moved, doubled or replaced a line of the record, or added a line of another record.",
		},
		{
			[]string{RecordBadJSON, RecordUnknownEvent, RecordOrder},
			ExitRefused,
			"Of **verify**: a line is not a JSON event, is an event that this version does not know, or is an event in a wrong place.",
		},
		{
			[]string{RecordCut, RecordGrown},
			ExitRefused,
			"Of **verify**: the record lacks signed events, or its last event is not that of **--head** (cut); or it has more events than " +
				"were signed (grown).",
		},
		{[]string{RecordSwapped, RecordWrongPolicy}, ExitRefused, "Of **verify**: the record is of another sandbox, or of a sandbox with another policy."},
		{
			[]string{RecordBadSignature, RecordNotSigned, RecordFormat},
			ExitRefused,
			"Of **verify**: the signature is wrong, or missing, or another version wrote the record.",
		},
		{
			[]string{RecordUnfinished, RecordTorn, RecordUntold, RecordEmpty},
			ExitRefused,
			"Of **verify**: the record has no end, a crash or a full disk cut off an event, it lacks the outcome of an exec, or it has no " +
				"event.",
		},
		{
			[]string{CheckBroken, SandboxLeftovers, SandboxOrphans},
			ExitRefused,
			"Of **verify**: the record is good. It reports a broken check, leftover files, or leftover processes.",
		},
		{
			[]string{GuardUnsupported},
			ExitLauncher,
			"With **processes.guard** the program cannot be started: it is no Python from 3.8 on, it lies where programs can write, no ELF loader loads it, or a variable " +
				"**LD_*** is set. It did not run.",
		},
		{
			[]string{RecordUnusable},
			ExitLauncher,
			"The record of **--record** cannot be made or written: there is one already, the disk is full, or somebody has changed it. " +
				"Nothing ran.",
		},
		{
			[]string{LimitReached},
			ExitLauncher,
			"A limit of the caller is too low for the launcher: processes, open files, address space, or the size of files. The hint names " +
				"the limit. Or the clients of a server have as many sandboxes as **--sandboxes** says.",
		},
		{[]string{BeyondCeiling}, ExitLauncher, "A client's request goes beyond the policy of **serve --ceiling**. The message names each key and value."},
		{
			[]string{OwnerGone, NoTerminal, DenyUnchecked, StateUnusable, SandboxUnavailable, Failed},
			ExitLauncher,
			"Something that **sandboxrun** needs is missing, or failed. The message says what.",
		},
	}
}

// Status is the exit status of a command that has failed with a code.
func Status(code string) int {
	for _, e := range Table() {
		if slices.Contains(e.Codes, code) {
			return e.Status
		}
	}
	return ExitLauncher
}
