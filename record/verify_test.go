package record

import (
	"bytes"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

func TestVerify(t *testing.T) {
	data, head := made(t, story("s1")...)
	r := verify(t, data, Options{
		Policy: Digest([]byte("policy")), Sandbox: "s1", Head: head.Hash,
	})
	if !r.Well || !r.Finished || r.Events != 8 || r.Head != head || r.Signature != SignatureNone {
		t.Errorf("%+v", r)
	}
	if len(r.Held) != 1 || r.Held[0].Name != "home" || len(r.NotTested) != 1 || len(r.Broken) != 0 || len(r.Weaker) != 1 ||
		len(r.Unverified) != 1 || r.Unverified[0].Name != "wall" {
		t.Errorf("claims: %+v", r)
	}
	if len(r.Runs) != 2 || r.Runs[1].Outcome != "timeout" || r.Network["allowed"] != 1 || r.Network["refused"] != 1 || r.End.Why != Deleted {
		t.Errorf("runs: %+v", r)
	}
	if r.First.IsZero() || r.Last.Before(r.First) || r.Session.PolicyFile != "/p/tâsk.toml" {
		t.Errorf("%v to %v, %+v", r.First, r.Last, r.Session)
	}
	if bytes.ContainsFunc(data, func(r rune) bool { return r > '~' || r < ' ' && r != '\n' }) {
		t.Error("the record is not ASCII")
	}
}

// Whatever is done to a record is found, and called what it is.
func TestVerifyFindsTampering(t *testing.T) {
	data, head := made(t, story("s1")...)
	other, _ := made(t, story("s2")...)
	whole, theirs := lines(data), lines(other)
	with := func(edit func(l []string) []string) string { return strings.Join(edit(slices.Clone(whole)), "") }
	set := func(i int, to string) func([]string) []string {
		return func(l []string) []string { l[i] = to; return l }
	}
	for name, c := range map[string]struct {
		record, want string
		o            Options
	}{
		"nothing":                 {with(func(l []string) []string { return l }), "", Options{}},
		"a word is changed":       {with(set(6, strings.Replace(whole[6], "timeout", "exited!", 1))), "record_edited:7", Options{}},
		"the hash is changed":     {with(set(6, whole[6][:len(whole[6])-5]+"0\"}\n")), "record_bad_json:7", Options{}},
		"a digit of the hash":     {with(set(3, flip(whole[3]))), "record_edited:4", Options{}},
		"the last line":           {with(set(7, strings.Replace(whole[7], "deleted", "DELETED", 1))), "record_edited:8", Options{}},
		"without its newline":     {strings.TrimSuffix(with(set(7, strings.Replace(whole[7], "deleted", "DELETED", 1))), "\n"), "record_edited:8", Options{}},
		"no newline":              {strings.TrimSuffix(string(data), "\n"), "", Options{}},
		"with its hash":           {with(set(6, forge(whole[6], "timeout", "exited"))), "record_replaced:8", Options{}},
		"the first with its hash": {with(set(0, forge(whole[0], "6.1", "6.2"))), "record_replaced:2", Options{}},
		"one is removed":          {with(func(l []string) []string { return slices.Delete(l, 4, 5) }), "record_removed:5", Options{}},
		"some are removed":        {with(func(l []string) []string { return slices.Delete(l, 1, 4) }), "record_removed:2", Options{}},
		"the first is removed":    {with(func(l []string) []string { return l[1:] }), "record_removed:1", Options{}},
		"neighbours change place": {with(func(l []string) []string { l[4], l[5] = l[5], l[4]; return l }), "record_reordered:5", Options{}},
		"others change place":     {with(func(l []string) []string { l[1], l[6] = l[6], l[1]; return l }), "record_reordered:2", Options{}},
		"one is there twice":      {with(func(l []string) []string { return slices.Insert(l, 4, l[3]) }), "record_repeated:5", Options{}},
		"cut":                     {with(func(l []string) []string { return l[:5] }), "record_unfinished", Options{}},
		"cut, the head known":     {with(func(l []string) []string { return l[:5] }), "record_cut record_unfinished", Options{Head: head.Hash}},
		"cut within a line":       {string(data[:len(data)-20]), "record_torn:8 record_unfinished", Options{}},
		"a line of another":       {with(set(4, theirs[4])), "record_foreign_line:5", Options{}},
		"the end of another":      {with(func(l []string) []string { return append(l[:4], theirs[4:]...) }), "record_foreign_line:5", Options{}},
		"another's record":        {string(other), "record_swapped:1", Options{Sandbox: "s1"}},
		"another policy":          {string(data), "record_wrong_policy:1", Options{Policy: Digest([]byte("other"))}},
		"no JSON":                 {with(set(2, "nonsense\n")), "record_bad_json:3", Options{}},
		"no JSON at the end":      {string(data) + "nonsense\n", "record_bad_json:9", Options{}},
		"an empty line":           {with(set(2, "\n"+whole[2])), "record_bad_json:3", Options{}},
		"a number for a text":     {chain([]string{whole[0], strings.Replace(whole[1], `"layer":"files"`, `"layer":7`, 1)}), "record_bad_json:2", Options{}},
		"a result of its own":     {chain([]string{whole[0], strings.Replace(whole[1], `"held"`, `"good"`, 1)}), "record_bad_json:2", Options{}},
		"an unknown event":        {chain([]string{whole[0], strings.Replace(whole[1], "SANDBOX_CHECK", "SANDBOX_MAGIC", 1)}), "record_unknown_event:2", Options{}},
		"another format":          {chain([]string{strings.Replace(whole[0], `"format":1`, `"format":2`, 1)}), "record_format:1", Options{}},
		"no session":              {chain([]string{strings.Replace(whole[0], "SANDBOX_SESSION", "SANDBOX_CHECK", 1)}), "record_order:1", Options{}},
		"two sessions":            {chain([]string{whole[0], strings.Replace(whole[0], `"seq":1`, `"seq":2`, 1)}), "record_order:2", Options{}},
		"on after the end":        {chain(append(slices.Clone(whole), strings.Replace(whole[1], `"seq":2`, `"seq":9`, 1))), "record_order:9", Options{}},
		"empty":                   {"", "record_empty", Options{}},
	} {
		r := verify(t, []byte(c.record), c.o)
		if got := codes(r); got != c.want || r.Well != (c.want == "") {
			t.Errorf("%s: %q, want %q: %+v", name, got, c.want, r.Problems)
		}
	}
	messages := map[string]string{}
	for _, c := range []string{with(set(6, strings.Replace(whole[6], "t", "T", 1))), with(func(l []string) []string { return l[1:] })} {
		for _, p := range verify(t, []byte(c), Options{}).Problems {
			messages[p.Message] = p.Code
		}
	}
	if len(messages) != 2 {
		t.Errorf("messages are not told apart: %v", messages)
	}
	// A chain does not show that all hashes were computed anew. A hash or signature outside the file does.
	forged := []byte(chain([]string{whole[0], whole[1], strings.Replace(whole[2], "not_tested", "held", 1), whole[3], whole[4], whole[5], whole[6], whole[7]}))
	if r := verify(t, forged, Options{}); !r.Well {
		t.Errorf("a record that was written anew: %+v", r.Problems)
	}
	if got := codes(verify(t, forged, Options{Head: head.Hash})); got != "record_cut" {
		t.Errorf("a record that was written anew: %q", got)
	}
}

// flip changes one digit of a line's hash.
func flip(line string) string {
	at := len(line) - 10
	with := byte('0')
	if line[at] == with {
		with = '1'
	}
	return line[:at] + string(with) + line[at+1:]
}

// Every byte of a record counts, but for the newline at its end.
func TestVerifySeesEveryByte(t *testing.T) {
	data, _ := made(t, session("s1"), run("e000001", "exited", 0), &End{Execs: 1})
	for i := range data[:len(data)-1] {
		changed := bytes.Clone(data)
		changed[i] ^= 1
		if verify(t, changed, Options{}).Well {
			t.Errorf("byte %d, %q, can be changed", i, data[i])
		}
	}
}

// What is not well in the sandbox makes its record not well, too.
func TestVerifyProblems(t *testing.T) {
	for want, events := range map[string][]Event{
		"check_broken":                   {session("s"), &Check{Result: Broken}, &End{}},
		"sandbox_litter":                 {session("s"), &End{Leftovers: []string{"/w/x"}}},
		"sandbox_orphans":                {session("s"), &End{Orphans: []Orphan{{7, "sh"}}}},
		"record_untold":                  {session("s"), run("e000002", "exited", 0), &End{Execs: 2}},
		"record_untold sandbox_orphans":  {session("s"), &End{Execs: 1, Orphans: []Orphan{{7, "sh"}}}},
		"record_unfinished":              {session("s")},
		"check_broken record_unfinished": {session("s"), &Check{Result: Broken}},
		"":                               {session("s"), run("e000002", "exited", 0), run("e000001", "exited", 0), &End{Execs: 2}},
	} {
		data, _ := made(t, events...)
		if got := codes(verify(t, data, Options{})); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestVerifyReadError(t *testing.T) {
	if _, err := Verify(iotest.ErrReader(errors.New("broken")), Options{}); err == nil {
		t.Error("no error")
	}
}

// The hashes are as in the package's documentation, so other programs can check them.
func TestHashesInPython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	const check = `
import hashlib, json, sys
prev = "0" * 64
for line in sys.stdin.buffer:
    event = json.loads(line)
    assert event["prev"] == prev
    prev = hashlib.sha256(line.rpartition(b',"hash":"')[0]).hexdigest()
    assert event["hash"] == prev
print(prev)
`
	data, head := made(t, story(`with ,"hash":" in it`)...)
	for _, c := range []struct {
		data []byte
		good bool
	}{{data, true}, {bytes.Replace(data, []byte("timeout"), []byte("exited!"), 1), false}} {
		cmd := exec.Command(python, "-c", check)
		cmd.Stdin = bytes.NewReader(c.data)
		out, err := cmd.Output()
		if (err == nil) != c.good || c.good && strings.TrimSpace(string(out)) != head.Hash {
			t.Errorf("%v: %q, %v", c.good, out, err)
		}
	}
}

func FuzzVerify(f *testing.F) {
	data := []byte(`{"seq":1,"session":"a","prev":"` + noHash() + `","event":"SANDBOX_SESSION","format":1`)
	f.Add([]byte(string(data)+hashMark+Digest(data)+"\"}\n"), []byte("{}"))
	f.Fuzz(func(t *testing.T, record, signature []byte) {
		r, err := Verify(bytes.NewReader(record), Options{Signature: signature, Key: make([]byte, 32)})
		if err != nil || r.Well { // it has no signature
			t.Errorf("%+v, %v", r, err)
		}
	})
}
