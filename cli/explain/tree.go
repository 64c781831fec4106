package explain

import (
	"cmp"
	_ "embed"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/sandboxrun/sandboxrun/cli/show"
	"github.com/sandboxrun/sandboxrun/cli/version"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/explain"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
)

// tree prints the whole view.
func (x *Explainer) tree(asJSON bool) error {
	nodes := x.files.Nodes()
	if asJSON {
		x.PrintJSON(map[string]any{
			"policy": x.d.Plan.PolicyFile, "policy_digest": x.d.Plan.PolicyDigest, "workdir": x.d.Plan.Exec.Dir,
			"uid": x.d.Plan.Exec.ShownUID, "gid": x.d.Plan.Exec.ShownGID, "view": nodes,
		})
		return nil
	}
	fmt.Fprintln(x.Out, x.head())
	colours := x.Colours(x.Out.File)
	for _, line := range treeLines(nodes, colours) {
		fmt.Fprintln(x.Out, line)
	}
	return nil
}

// head is the line above the view: the policy, the user and the working directory.
func (x *Explainer) head() string {
	e := x.d.Plan.Exec
	return fmt.Sprintf("%s: the program runs as uid %d in %s and sees", pathname.Printable(x.d.Plan.PolicyFile), e.ShownUID, pathname.Printable(e.Dir))
}

// widest is the maximum width of the column of names, in characters.
const widest = 48

// treeLines formats nodes, one a line.
func treeLines(nodes []explain.Node, colours bool) []string {
	labels, width := make([]string, len(nodes)), 0
	for i, n := range nodes {
		labels[i] = branches(nodes, i) + label(n)
		width = max(width, min(utf8.RuneCountInString(labels[i]), widest))
	}
	lines := make([]string, len(nodes))
	for i, n := range nodes {
		pad := strings.Repeat(" ", max(0, width-utf8.RuneCountInString(labels[i])))
		line := strings.TrimRight(fmt.Sprintf("%s%s  %-2s  %-8s %6s  %s", labels[i], pad, access(n), kindName(n), sizeText(n), origin(n)), " ")
		if c := nodeColour(n); colours && c != "" {
			line = c + line + show.Normal
		}
		lines[i] = line
	}
	return lines
}

// branches draws the lines of the tree before each name.
func branches(nodes []explain.Node, i int) string {
	var b strings.Builder
	for depth := 1; depth <= nodes[i].Depth; depth++ {
		more := false // another node of this depth follows below the same parent
		for _, n := range nodes[i+1:] {
			if n.Depth < depth {
				break
			}
			if n.Depth == depth {
				more = true
				break
			}
		}
		here := depth == nodes[i].Depth
		b.WriteString(map[[2]bool]string{{true, true}: "├── ", {true, false}: "└── ", {false, true}: "│   ", {false, false}: "    "}[[2]bool{here, more}])
	}
	return b.String()
}

func label(n explain.Node) string {
	text := pathname.Printable(n.Name)
	if n.Dir && n.Path != "/" {
		text += "/"
	}
	if n.Link != "" {
		text += " → " + pathname.Printable(n.Link)
	}
	return text
}

func access(n explain.Node) string {
	switch {
	case n.Link != "" || n.Kind == rootfs.PlaceOwn:
		return ""
	case n.Kind == rootfs.PlaceMask:
		return "--"
	case n.Writable:
		return "rw"
	}
	return "ro"
}

// kindName is the kind of a node in one word.
func kindName(n explain.Node) string {
	switch {
	case n.Absent:
		return "absent"
	case n.Denied:
		return "denied"
	case n.Kind == rootfs.PlaceMask:
		return "hidden"
	case n.Link != "":
		return "link"
	case n.Kind == rootfs.PlaceTmpfs:
		return "memory"
	case n.Kind == rootfs.PlaceGenerated:
		return "made"
	case n.Kind == rootfs.PlaceRoot && !n.Dir:
		return "copy"
	case n.Kind == rootfs.PlaceRoot:
		return ""
	}
	return string(n.Kind)
}

func sizeText(n explain.Node) string {
	if n.Size == 0 || n.Kind == rootfs.PlaceMask {
		return ""
	}
	return show.AboutSize(n.Size)
}

func origin(n explain.Node) string {
	text := n.Rule
	switch {
	case n.Kind == rootfs.PlaceOwn || n.Rule == "default":
		text = "every sandbox"
	case n.Why != "":
		text += "  " + pathname.Printable(n.Why)
	case n.From != "" && n.From != "default":
		text += "  " + pathname.Printable(n.From)
	}
	if n.Host != "" {
		text += "  from " + pathname.Printable(n.Host)
	}
	return text
}

func nodeColour(n explain.Node) string {
	switch {
	case n.Kind == rootfs.PlaceMask:
		return show.Red
	case n.Kind == rootfs.PlaceTmpfs:
		return show.Cyan
	case n.Writable:
		return show.Yellow
	}
	return ""
}

//go:embed explain.html
var explainPage string

// branch is a node with its children.
type branch struct {
	Name, Class, Access, Kind, Size, Origin string
	Below                                   []*branch
}

// html writes the view as one page. The file appears whole or not at all.
func (x *Explainer) html(file string) error {
	return replaceFile(file, strings.NewReplacer(
		"{{policy}}", html.EscapeString(pathname.Printable(x.d.Plan.PolicyFile)), "{{head}}", html.EscapeString(x.head()),
		"{{view}}", listItems(grow(x.files.Nodes()).Below), "{{version}}", html.EscapeString(version.Version), "{{digest}}", x.d.Plan.PolicyDigest,
	).Replace(explainPage))
}

// listItems writes branches and all below them as lists of HTML. Programs choose names, so each text is escaped.
func listItems(branches []*branch) string {
	var s strings.Builder
	s.WriteString("<ul>\n")
	for _, b := range branches {
		if len(b.Below) == 0 {
			fmt.Fprintf(&s, `<li><span class="%s">%s</span></li>`+"\n", b.Class, b.row())
			continue
		}
		fmt.Fprintf(&s, `<li><details open class="%s"><summary>%s</summary>%s</details></li>`+"\n", b.Class, b.row(), listItems(b.Below))
	}
	s.WriteString("</ul>")
	return s.String()
}

// row writes the texts of a branch, less the empty ones.
func (b *branch) row() string {
	var s strings.Builder
	for _, cell := range [][2]string{{"name", b.Name}, {"access", b.Access}, {"kind", b.Kind}, {"size", b.Size}, {"origin", b.Origin}} {
		if cell[1] != "" {
			fmt.Fprintf(&s, `<span class="%s">%s</span>`, cell[0], html.EscapeString(cell[1]))
		}
	}
	return s.String()
}

// grow makes a tree from a list in which each node stands before its children.
func grow(nodes []explain.Node) *branch {
	top := &branch{}
	path := []*branch{top}
	for _, n := range nodes {
		b := &branch{
			Name: label(n), Access: access(n), Kind: kindName(n), Size: sizeText(n), Origin: origin(n),
			Class: cmp.Or(map[bool]string{true: "mask"}[n.Kind == rootfs.PlaceMask], map[bool]string{true: "rw"}[n.Writable]),
		}
		path = path[:n.Depth+1]
		above := path[n.Depth]
		above.Below = append(above.Below, b)
		path = append(path, b)
	}
	return top
}

// replaceFile writes a new file beside the old one and renames it to the old one's name.
func replaceFile(file, text string) error {
	const mode = 0o644
	f, err := os.CreateTemp(filepath.Dir(file), ".sandboxrun-*")
	if err != nil {
		return fmt.Errorf("write %q: %w", file, err)
	}
	_, err = f.WriteString(text)
	if err == nil {
		err = f.Chmod(mode)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the first error is reported
		return fmt.Errorf("write %q: %w", file, err)
	}
	return nil
}
