// Package journal keeps what has happened in a sandbox and reads it back. It owns the form of the file (journal.go) and a reader that
// follows it (read.go). It imports of ours fault, owner and spec.
//
// What has happened in a sandbox is kept in its directory, ID/events.jsonl, for people and programs to look at. Nothing
// of ours depends on it. On the short way of exec forkexec/events.c writes events from templates, so the form is fixed:
//
// A line is a JSON object without spaces between its parts and one '\n'. It begins with `{"time":"`, which stands
// nowhere else in it since quotes within strings are escaped: by that a reader finds where a line begins behind one that
// a full disk has cut off. "time" is always written with nine digits, in UTC; "event" and, where there is one, "exec" follow:
//
//	{"time":"2006-01-02T15:04:05.000000000Z","event":"created","name":"pair","policy":"/p.toml","owner":{"pid":7,"name":"sh"},"limits":[{"limit":"pids","value":8,"enforced_by":"cgroup1","verified":true}]}
//	{"time":"2006-01-02T15:04:05.000000000Z","event":"exec_started","exec":"e000001","command":"python3"}
//	{"time":"2006-01-02T15:04:05.000000000Z","event":"warning","exec":"e000001","message":"..."}
//	{"time":"2006-01-02T15:04:05.000000000Z","event":"exec_ended","exec":"e000001","outcome":"exited","finding":null,"exit_code":0,"wall_ms":12.1,"cpu_ms":9.034,"max_rss_bytes":9437184}
//
// "name" and "limits" are left out where they are empty; "owner" is null where the sandbox has none. "detached":true
// follows "command" where it is so. "outcome", "finding" and the numbers are those of the Result; milliseconds have at
// most three decimals. "command" is argv[0] alone, since arguments may hold secrets, of at most MaxCommand bytes, before any is escaped;
// a longer one is cut after a whole character and ends with "…". In strings `"`, `\` and everything that strconv.IsPrint does not print
// are escaped (\uXXXX), and what is not UTF-8 becomes \ufffd, so that the file can be shown on a terminal as it is.
//
// A line is one write(2) to a descriptor with O_APPEND, so lines of parallel execs do not mix. "exec_started" comes once
// the program has been executed; its writer opens with O_CREAT and mode 0600, and rotates (see keepSmall). The others open
// without O_CREAT: the sandbox may have been deleted meanwhile, and nothing must appear in its directory again. Everything
// is opened below the sandbox's directory, by a descriptor, with O_NOFOLLOW: another sandbox may have its id by now.
package journal
