package integration

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

//go:embed testdata/hostile_writer.py
var hostileWriter string

// envSeed names the seed of random tests, to play a failure again.
const envSeed = "SANDBOXRUN_SEED"

func seed(t *testing.T) int64 {
	t.Helper()
	n := time.Now().UnixNano() % 1_000_000
	if text := os.Getenv(envSeed); text != "" {
		var err error
		if n, err = strconv.ParseInt(text, 10, 64); err != nil {
			t.Fatalf("%s: %v", envSeed, err)
		}
	}
	t.Logf("%s=%d", envSeed, n)
	return n
}

// TestHostileWriter makes random policies with overlapping grants, carve-outs, binds and denies over random trees, and runs a
// program that renames, exchanges, links, removes and replaces whatever it may write, above all what the policy names. However
// often sandboxes of the policy are made: none shows what the first did not show, and nothing outside the grants changes.
func TestHostileWriter(t *testing.T) {
	const rounds, runs, tries = 24, 3, 20
	flavours(t, func(b *box) {
		needProgram(b.t, "python3")
		first, ran := seed(b.t), 0
		for i := range int64(rounds) {
			b := newBox(b.t)
			w := &wreck{box: b, r: rand.New(rand.NewSource(first + i))}
			w.grow()
			before := w.snapshot()
			policy := ""
			for n := 0; n == 0 && w.tried < tries && !b.t.Failed(); w.tried++ { // until there is one that makes sense
				policy = w.writePolicy()
				for n < runs && w.play(policy) {
					n, ran = n+1, ran+1
				}
			}
			w.compare(before)
			if b.t.Failed() {
				b.t.Fatalf("%s=%d, round %d:\n%s\nbefore:\n%s\nafter:\n%s", envSeed, first, i, b.read(policy), listing(before), listing(w.snapshot()))
			}
		}
		b.t.Logf("%d of %d runs were not refused", ran, rounds*runs)
		if ran < rounds {
			b.t.Error("too few")
		}
	})
}

// wreck is one round.
type wreck struct {
	*box
	r      *rand.Rand
	dirs   []string // of the tree
	files  []string
	links  []string
	inside []string // paths inside that it names
	roots  []string // inside: what can be written
	writes []string // the host paths behind these
	denies []string
	fixed  []string          // host paths that no program may move
	shown  map[string]string // tokens of the first sandbox
	tried  int
}

func (w *wreck) one(list []string) string { return list[w.r.Intn(len(list))] }

// grow makes a tree with a token in each file, and directories outside it that the program can guess.
func (w *wreck) grow() {
	w.dirs = []string{w.mkdir("tree")}
	for i := range 12 {
		rel, _ := filepath.Rel(w.dir, w.one(w.dirs))
		name := filepath.Join(rel, w.one([]string{"a", "b", "c", "d", "e"}))
		if _, err := os.Lstat(w.path(name)); err == nil {
			continue
		}
		switch kind := w.r.Intn(8); {
		case kind < 5 || i < 4:
			w.dirs = append(w.dirs, w.mkdir(name))
			w.files = append(w.files, w.file(filepath.Join(name, "f"), fmt.Sprintf("TOKEN-%d-", i)))
		case kind == 5 && len(w.files) > 0:
			if os.Link(w.one(w.files), w.path(name)) == nil {
				w.files = append(w.files, w.path(name))
			}
		case kind == 6 || i == 10:
			w.links = append(w.links, w.link(name, w.one(append(w.dirs, w.files...))))
		default:
			w.files = append(w.files, w.file(name, fmt.Sprintf("TOKEN-%d-", i)))
		}
	}
	for i, name := range []string{"outside/a/f", "outside/b/c/f", "outside/f"} {
		w.file(name, fmt.Sprintf("TOKEN-%d-", 100+i))
	}
}

func (w *wreck) writePolicy() string {
	paths := slices.Concat(w.dirs[1:], w.dirs[1:], w.dirs[1:], w.files, w.links)
	w.inside, w.writes, w.denies, w.fixed = nil, nil, nil, nil
	grants := map[string][]string{"write": {w.one([]string{w.dirs[0], w.dirs[1], w.one(w.dirs)})}}
	var binds, tmpfs []object
	var own []string // paths at which something of the sandbox's own may stand
	w.roots = slices.Clone(grants["write"])
	for i := range 2 + w.r.Intn(6) {
		p, key := w.one(paths), w.one([]string{"read", "read", "write", "deny", "deny", "bind", "bind", "tmpfs"})
		if key == "deny" && len(w.links) > 0 && w.r.Intn(3) == 0 {
			p = w.one(w.links)
		}
		w.inside = append(w.inside, p)
		switch key {
		case "bind":
			target := w.one([]string{fmt.Sprint("/m", i), fmt.Sprint("/m", i), w.one(paths)})
			writable := w.r.Intn(2) == 0
			binds = append(binds, object{"source": p, "target": target, "writable": writable})
			w.inside, own = append(w.inside, target), append(own, target)
			if writable {
				w.roots, w.writes = append(w.roots, target), append(w.writes, p)
			}
		case "tmpfs":
			p = w.one(w.dirs[1:])
			tmpfs, own = append(tmpfs, object{"path": p, "size": "1M"}), append(own, p)
		case "write":
			w.roots = append(w.roots, p)
			grants[key] = append(grants[key], p)
		default:
			grants[key] = append(grants[key], p)
		}
	}
	for _, t := range tmpfs { // those in a writable grant
		p, _ := t["path"].(string)
		if slices.ContainsFunc(grants["write"], under(p)) && !slices.ContainsFunc(own, func(q string) bool { return q != p && under(p)(q) }) {
			w.fixed = append(w.fixed, p)
		}
	}
	w.writes, w.denies = append(w.writes, grants["write"]...), grants["deny"]
	for _, d := range w.denies {
		if real, err := filepath.EvalSymlinks(d); err == nil && real == d {
			w.fixed = append(w.fixed, d)
		}
	}
	for i, p := range w.writes {
		w.writes[i], _ = filepath.EvalSymlinks(p)
	}
	files := object{"missing": w.one([]string{"error", "skip"})}
	for key, list := range grants {
		files[key] = list
	}
	if len(tmpfs) > 0 {
		files["tmpfs"] = tmpfs
	}
	return w.policy(object{"files": files, "bind": binds})
}

// play runs the program once. It reports false if the policy is refused, which it may be at any time.
func (w *wreck) play(policy string) bool {
	w.t.Helper()
	job, err := json.Marshal(object{
		"seed": w.r.Int63(), "ops": 60, "roots": append(slices.Clone(w.roots), w.path("tree")),
		"paths":   append(slices.Clone(w.inside), w.roots...),
		"outside": []string{w.path("outside"), w.path("outside", "a"), w.path("outside", "b")},
	})
	w.mustDo(err)
	a := w.python(policy, hostileWriter, string(job))
	if a.status == 125 && (strings.Contains(a.stderr, "policy_invalid") || strings.Contains(a.stderr, "grant_missing")) {
		return false
	}
	var seen [2]map[string]string
	if a.exits(0); json.Unmarshal([]byte(a.stdout), &seen) != nil {
		w.t.Errorf("it did not run: %v", a)
		return false
	}
	if w.shown == nil {
		w.shown = seen[0]
		for _, d := range w.denies {
			real, err := filepath.EvalSymlinks(d)
			spared := strings.Contains(a.stderr, fmt.Sprintf("%q leads, by a link", d))
			if at := seen[0][tokenOf(real)]; err == nil && !spared && at != "" {
				w.t.Errorf("denied %q is shown as %q", d, at)
			}
		}
	}
	for _, tokens := range seen {
		for token, at := range tokens {
			if w.shown[token] == "" {
				w.t.Errorf("a run shows %s as %q, which the first one did not show at its beginning", token, at)
			}
		}
	}
	return true
}

// tokenOf is what a file holds that no link is on the way to.
func tokenOf(p string) string {
	if real, err := filepath.EvalSymlinks(p); err != nil || real != p {
		return ""
	}
	data, _ := os.ReadFile(p) // a directory has none
	return string(data)
}

// snapshot describes every path: its type, content and number.
func (w *wreck) snapshot() map[string]string {
	all := map[string]string{}
	for _, top := range []string{"tree", "outside"} {
		w.mustDo(filepath.WalkDir(w.path(top), func(p string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			st, _ := info.Sys().(*syscall.Stat_t)
			text := fmt.Sprintf("%v %d ", info.Mode(), st.Ino)
			switch {
			case info.Mode()&fs.ModeSymlink != 0:
				target, _ := os.Readlink(p)
				text += target
			case info.Mode().IsRegular():
				text += w.read(p)
			}
			all[p] = text
			return nil
		}))
	}
	return all
}

// compare finds what has changed outside the writable grants, and what has been moved from under a mount.
func (w *wreck) compare(before map[string]string) {
	w.t.Helper()
	after := w.snapshot()
	writable := func(p string) bool { return slices.ContainsFunc(w.writes, under(p)) }
	mayChange := map[string]bool{} // by hard links, which the grants show
	for p, text := range before {
		if writable(p) {
			mayChange[strings.Fields(text)[1]] = true
		}
	}
	for p, text := range before {
		if !writable(p) && !mayChange[strings.Fields(text)[1]] && after[p] != text {
			w.t.Errorf("%q was %q and is %q", p, text, after[p])
		}
	}
	for _, p := range w.fixed {
		if is := strings.Fields(after[p]); len(is) < 2 || is[1] != strings.Fields(before[p])[1] {
			w.t.Errorf("%q was %q and is %q: it has been moved", p, before[p], after[p])
		}
	}
	for p, text := range after {
		if !writable(p) && before[p] == "" {
			w.t.Errorf("%q has been made: %q", p, text)
		}
	}
}

// under says whether p is a directory or lies in it.
func under(p string) func(dir string) bool {
	return func(dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }
}

func listing(all map[string]string) string {
	var b strings.Builder
	var paths []string
	for p := range all {
		paths = append(paths, p)
	}
	slices.Sort(paths)
	for _, p := range paths {
		fmt.Fprintf(&b, "  %s %s\n", p, all[p])
	}
	return b.String()
}
