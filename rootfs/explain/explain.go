// Package explain says of paths inside, and of programs, why they are there or are not, and which rule of the policy decides. It
// resolves a path step by step, as the kernel does, and asks the compiled View, the policy and the host; View has no field for it.
//
// It imports of ours rootfs, compile (for the base's tables), elf, hostfs, pathname, survey and units.
package explain

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
)

// Explainer says of paths inside why they are there, or are not. Like Compile it looks at the host through Tree alone and
// changes nothing. What it says is what the kernel will do; a test compares the two.
type Explainer struct {
	View   *rootfs.View
	Policy rootfs.Policy // that View was compiled from
	Tree   hostfs.Tree
	// Who is as whom the program runs, Launcher as whom the sandbox is made, in the host's numbers.
	Who, Launcher Who
	// OwnID is whether Who is a number that nothing on disk has: what is the Launcher's is Who's where a mount is Idmapped.
	OwnID bool
	// HiddenProc and ReadonlyProc are the paths of the program's own /proc that it cannot open, and cannot write.
	HiddenProc, ReadonlyProc []string
	// NoProc is whether it has none: an empty directory covers it.
	NoProc bool
	// Executed are the only files that the program can execute, with their links resolved; empty: all.
	Executed []string
	// Tool is the target of a bind that no rule asked for: the launcher's own, for programs that need it. Empty if there is none.
	Tool string

	seen  *rootfs.Index
	rules map[string]rule
}

// Who is a user to the kernel. Nobody inside has a capability, so modes decide, for uid 0 too.
type Who struct {
	UID, GID int
	Groups   []int
}

// may reports whether modes let w do all of what bits say: 4 read, 2 write, 1 execute or search. Access control lists are
// not looked at.
func (w Who) may(info hostfs.Info, bits fs.FileMode) bool {
	perm := info.Mode.Perm()
	switch {
	case info.UID == w.UID:
		perm >>= 6
	case info.GID == w.GID || slices.Contains(w.Groups, info.GID):
		perm >>= 3
	}
	return perm&bits == bits
}

// Verdict says what a path is to the program.
type Verdict string

// Verdicts.
const (
	VerdictInside  Verdict = "inside"  // it is there
	VerdictDenied  Verdict = "denied"  // a mask of files.deny stands in its place
	VerdictHidden  Verdict = "hidden"  // a mask of the base stands in its place, or of /proc
	VerdictMissing Verdict = "missing" // nothing is there
	VerdictClosed  Verdict = "closed"  // the program may not search a directory on the way
	VerdictLoop    Verdict = "loop"    // more links than the kernel follows
)

// Hop is a link on the way.
type Hop struct {
	At   string `json:"at"`   // inside, no component before the last being a link
	Text string `json:"text"` // what it says
}

// Explanation is what there is to say of one path inside.
type Explanation struct {
	Path     string           `json:"path"` // as asked
	Verdict  Verdict          `json:"verdict"`
	Is       string           `json:"is"`   // the same in a few words, with what the program can do there
	Real     string           `json:"real"` // where it leads, or, if nothing is there, where that would be
	Links    []Hop            `json:"links,omitempty"`
	Kind     rootfs.PlaceKind `json:"kind,omitempty"`
	Type     string           `json:"type,omitempty"` // "file", "dir", "socket", "fifo", "device"
	Host     string           `json:"host,omitempty"` // the host path that is shown there
	Readable bool             `json:"readable"`       // a file can be read; a directory can be listed and searched
	Writable bool             `json:"writable"`       // a file can be written; in a directory files can be made
	// Executable is whether modes and mounts let the program execute it. Program has what it needs.
	Executable bool     `json:"executable"`
	Rule       string   `json:"rule,omitempty"` // the key of the policy that decides, or "default"
	From       string   `json:"from,omitempty"` // where that stands: "task.toml:12:9"
	Also       []string `json:"also,omitempty"` // other names inside of what the host has under the path asked for
	Why        []string `json:"why"`            // sentences, the most important first
	Hint       string   `json:"hint,omitempty"` // what would show it

	spot     rootfs.Place
	info     hostfs.Info
	unlisted bool // it could be executed if processes.execute named it
	stop     stop
}

// stop is where the way to a path ended too early.
type stop struct {
	dir  rootfs.Place // the last place that is there
	part string       // what of the path was not found in it
	err  error
}

// Place is where the path leads.
func (e *Explanation) Place() rootfs.Place { return e.spot }

// Inside reports whether the program finds something at the path.
func (e *Explanation) Inside() bool { return e.Verdict == VerdictInside }

// Explain says where an absolute path, as the program would use it, leads, and why.
func (x *Explainer) Explain(name string) *Explanation {
	e := x.resolve(name)
	x.reasons(e)
	e.Is = e.is()
	return e
}

func (e *Explanation) is() string {
	switch e.Verdict {
	case VerdictInside:
	case VerdictDenied:
		return "not inside, denied"
	case VerdictHidden:
		return "not inside, hidden"
	case VerdictClosed:
		return "not inside, out of reach"
	case VerdictLoop:
		return "not inside, links in circles"
	default:
		return "not inside"
	}
	switch {
	case e.Readable && e.Writable:
		return "inside, writable"
	case e.Readable:
		return "inside, read-only"
	case e.Writable:
		return "inside, write-only"
	}
	return "inside, unreadable"
}

// resolve goes the way that the kernel goes: step by step, and each directory must be one and be searchable. Lookup,
// which serves to place mounts, forgives more.
func (x *Explainer) resolve(name string) *Explanation {
	x.prepare()
	w := &way{Explainer: x, e: &Explanation{Path: name, Why: []string{}}, rest: strings.Split(name, "/")}
	w.at, w.info, _ = x.at("/")
	for len(w.rest) > 0 {
		part := w.rest[0]
		w.rest = w.rest[1:]
		if !w.step(part) {
			return w.e
		}
	}
	x.arrived(w.e, w.at, w.info)
	return w.e
}

// way is a path that is half resolved: at is there, and is no link.
type way struct {
	*Explainer
	e    *Explanation
	at   rootfs.Place
	info hostfs.Info
	rest []string
}

// step takes one component. It reports false where the way ends.
func (w *way) step(part string) bool {
	switch {
	case !w.at.Dir:
		return w.stop(VerdictMissing, part, errNotDir)
	case part == "":
		return true
	case w.at.Kind == rootfs.PlaceMask:
		w.e.spot, w.e.info = w.at, w.info
		return w.stop(w.maskVerdict(w.at.Mount), part, fs.ErrPermission)
	case !w.Who.may(w.info, 1):
		return w.stop(VerdictClosed, part, fs.ErrPermission)
	}
	next := pathname.Join(w.at.Path, part)
	switch part {
	case ".":
		return true
	case "..":
		next = pathname.Parent(w.at.Path)
	}
	if own := pathname.KernelPlace(next); own == "/proc" || own == "/dev" {
		return w.own(own, next)
	}
	return w.enter(next, part)
}

// enter goes to the next place, or to where it leads.
func (w *way) enter(next, part string) bool {
	spot, info, err := w.Explainer.at(next)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return w.stop(VerdictClosed, part, err)
	case err != nil:
		return w.stop(VerdictMissing, part, err)
	case spot.Link == "":
		w.at, w.info = spot, info
		return true
	}
	return w.follow(next, spot.Link)
}

// follow takes a link.
func (w *way) follow(at, text string) bool {
	w.e.Links = append(w.e.Links, Hop{at, text})
	if len(w.e.Links) > pathname.MaxLinks {
		return w.stop(VerdictLoop, path.Base(at), pathname.ErrLoop)
	}
	w.rest = append(strings.Split(text, "/"), w.rest...)
	if strings.HasPrefix(text, "/") {
		w.restart()
	}
	return true
}

func (w *way) restart() { w.at, w.info, _ = w.Explainer.at("/") }

func (w *way) stop(v Verdict, part string, err error) bool {
	part = remaining(part, w.rest)
	w.e.Verdict, w.e.stop, w.e.Real = v, stop{w.at, part, err}, w.at.Path
	if part != "" {
		w.e.Real = path.Join(w.at.Path, part)
	}
	return false
}

// remaining writes the rest of a path.
func remaining(part string, rest []string) string {
	return strings.TrimRight(strings.Join(append([]string{part}, rest...), "/"), "/")
}

var errNotDir = errors.New("not a directory")

// arrived fills in what is at the end of the way.
func (x *Explainer) arrived(e *Explanation, at rootfs.Place, info hostfs.Info) {
	e.Verdict, e.Real, e.Kind, e.Host, e.spot, e.info = VerdictInside, at.Path, at.Kind, at.Host, at, info
	e.Type = typeOf(info.Mode)
	if at.Kind == rootfs.PlaceMask {
		e.Verdict = x.maskVerdict(at.Mount)
		return
	}
	if e.Type == typePipe && x.masksPipe(at) || e.Type == typeDir && x.coversShut(at, info) != nil {
		e.Verdict = VerdictHidden
		return
	}
	var readOnly, noExec bool
	if t, ok := x.Tree.(hostfs.MountFlags); ok && at.Kind == rootfs.PlaceHost {
		readOnly, noExec = t.MountFlags(at.Host)
	}
	special := e.Type != typeDir && e.Type != typeFile // what can be written to through a read-only mount
	e.Readable = x.Who.may(info, 4)
	e.Writable = x.Who.may(info, 2) && (at.Writable && !readOnly || special)
	e.Executable = x.Who.may(info, 1) && e.Type == typeFile && !noExec
	e.unlisted = e.Executable && len(x.Executed) > 0 && !slices.Contains(x.Executed, e.Real)
	e.Executable = e.Executable && !e.unlisted
	if e.Type == typeDir {
		e.Readable = x.Who.may(info, 4|1)
		e.Writable = e.Writable && x.Who.may(info, 1)
	}
}

// coversShut gives a denied path below a directory that the launcher cannot search: each exec has such a directory covered.
func (x *Explainer) coversShut(at rootfs.Place, info hostfs.Info) *rootfs.Denied {
	if at.Kind != rootfs.PlaceHost || x.Launcher.UID == 0 || x.Launcher.may(info, 1) {
		return nil
	}
	i := slices.IndexFunc(x.View.Absent, func(d rootfs.Denied) bool { return pathname.Below(d.Inside, at.Path) })
	if i < 0 {
		return nil
	}
	return &x.View.Absent[i]
}

// masksPipe reports whether a named pipe lies in a directory that the policy grants for reading. No mount keeps a program from writing to
// one, so the launcher masks it.
func (x *Explainer) masksPipe(at rootfs.Place) bool {
	return at.Kind == rootfs.PlaceHost && !at.Writable && at.Path != at.Mount.Target && x.ruleOf(at.Mount).key != keyBase
}

const (
	typeFile = "file"
	typeDir  = "dir"
	typePipe = "fifo"
)

func typeOf(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return typeDir
	case mode&fs.ModeSocket != 0:
		return "socket"
	case mode&fs.ModeNamedPipe != 0:
		return typePipe
	case mode&fs.ModeDevice != 0:
		return "device"
	}
	return typeFile
}

func (x *Explainer) maskVerdict(m *rootfs.Mount) Verdict {
	if x.ruleOf(m).key == keyDeny {
		return VerdictDenied
	}
	return VerdictHidden
}

// prepare makes what every question needs.
func (x *Explainer) prepare() {
	if x.seen == nil {
		x.seen = x.View.Index(hostfs.NewMemo(x.Tree))
		x.rules = rulesOf(x.Policy)
	}
}

// at says what stands at a path of which no component but the last is a link, and what the kernel knows of it.
func (x *Explainer) at(p string) (rootfs.Place, hostfs.Info, error) {
	spot, err := x.seen.At(p)
	if err != nil {
		return spot, hostfs.Info{}, err
	}
	info := hostfs.Info{Mode: 0o755, UID: x.Launcher.UID, GID: x.Launcher.GID}
	switch spot.Kind {
	case rootfs.PlaceHost:
		info, err = x.seen.Tree.Lstat(spot.Host)
		if spot.Mount.Idmapped {
			info = x.idmapped(info)
		}
		return spot, info, err
	case rootfs.PlaceTmpfs:
		if p == spot.Mount.Target {
			info.Mode = fs.FileMode(spot.Mount.Mode) & fs.ModePerm
			if spot.Mount.Owned {
				info.UID, info.GID = x.Who.UID, x.Who.GID
			}
		}
	case rootfs.PlaceMask:
		info.Mode = 0
	case rootfs.PlaceGenerated:
		info.Mode = 0o444
	case rootfs.PlaceRoot:
		if e := x.seen.Entries[p]; e.Kind == rootfs.EntryFile {
			info.Mode, info.Size = e.Mode, int64(len(e.Content))
		}
	}
	if spot.Dir {
		info.Mode |= fs.ModeDir
	}
	return spot, info, nil
}

// idmapped is what a file is to the program where what is the launcher's is shown as the program's.
func (x *Explainer) idmapped(info hostfs.Info) hostfs.Info {
	if info.UID == x.Launcher.UID {
		info.UID = x.Who.UID
	}
	if info.GID == x.Launcher.GID {
		info.GID = x.Who.GID
	}
	return info
}
