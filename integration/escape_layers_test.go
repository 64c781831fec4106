package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxrun/sandboxrun/container/doctor/escapes"
)

// layer is a wall that a build for tests can leave out of a sandbox.
type layer struct {
	name     string
	sabotage string // what TestSabotage calls it, or several with commas between them
}

// layers are those that attacks may lean on. Without no_new_privs there is no filter either: the kernel would not load one.
func layers() []layer {
	const capabilities = "bounding,securebits,capset"
	return []layer{
		{"filter", "filter"},
		{"capabilities", capabilities},
		{"no_new_privs and filter", "no_new_privs"},
		{"filter and capabilities", "filter," + capabilities},
		{"network", "network"},
		{"ipc", "ipc,sandbox ipc"},
		{"proc", "proc"},
		{"mask", "mask"},
		{"read-only", "read-only"},
		{"proc masks", "proc masks"},
		{"proc read-only", "proc read-only"},
		{"descriptors", "descriptors"},
		{"environment", "environment"},
		{"program id", "program id"},
		{"program id and read-only", "program id,read-only"},
		{"program id and proc read-only", "program id,proc read-only"},
	}
}

// holds says whether an attack is to succeed without a layer. What leans on one layer also succeeds without two of which
// it is one.
func (l layer) holds(a *escapes.Attack) bool {
	list := strings.Split(a.Leans, ",")
	if w.uid == 0 {
		list = append(list, strings.Split(a.LeansRoot, ",")...)
	} else {
		list = append(list, strings.Split(a.LeansUser, ",")...)
	}
	return slices.ContainsFunc(list, func(on string) bool {
		return on != "" && (on == l.name || slices.Contains(strings.Split(l.name, " and "), on))
	})
}

// TestEscapesWithoutALayer leaves layers out one by one. What then succeeds has leant on that layer alone, and has to be known:
// everything else the other layers hold without it. The checks at the start would refuse each of these sandboxes (TestSabotage).
func TestEscapesWithoutALayer(t *testing.T) {
	binary := sabotagedBinary(t)
	flavours(t, func(b *box) {
		needProgram(b.t, "python3")
		product := w.binary
		w.binary = binary
		defer func() { w.binary = product }()
		list := attacks()
		control := newStage(b.t).outside(list)
		list = slices.DeleteFunc(list, func(a escapes.Attack) bool { return !control.Broke(a.Name) })
		for _, l := range layers() {
			b.t.Run(strings.ReplaceAll(l.name, " ", "-"), func(t *testing.T) {
				got := newStage(t).inside(list, l.sabotage)
				held, leant := 0, 0
				for _, a := range list {
					switch broke, want := got.Broke(a.Name), l.holds(&a); {
					case broke && !want:
						t.Errorf("%q succeeds: it leans on this alone\n%s", a.Name, got[a.Name])
					case !broke && want:
						t.Errorf("%q does not succeed: something else holds it too\n%s", a.Name, got[a.Name])
					case broke:
						leant++
					default:
						held++
					}
				}
				t.Logf("%d attacks lean on this alone, %d do not", leant, held)
			})
		}
	})
}

// TestLayersAreDocumented: docs/security.md says, attack by attack, what leans on one layer alone.
func TestLayersAreDocumented(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "docs", "security.md"))
	if err != nil {
		t.Skip("the documents are not here")
	}
	for _, l := range layers() {
		if row := l.row(); !strings.Contains(string(text), row) {
			t.Errorf("docs/security.md lacks this row:\n%s", row)
		}
	}
}

// row is a layer's row of the table in docs/security.md.
func (l layer) row() string {
	var leaning []string
	for _, a := range escapes.All() {
		always := slices.Contains(strings.Split(a.Leans, ","), l.name)
		switch root := slices.Contains(strings.Split(a.LeansRoot, ","), l.name); {
		case always && !a.RootOnly:
			leaning = append(leaning, a.Name)
		case always, root:
			leaning = append(leaning, a.Name+" (root)")
		case slices.Contains(strings.Split(a.LeansUser, ","), l.name):
			leaning = append(leaning, a.Name+" (user)")
		}
	}
	if names := strings.Split(l.name, " and "); len(names) > 1 {
		leaning = append(leaning, "what leans on one of the two")
	}
	if len(leaning) == 0 {
		leaning = []string{"nothing"}
	}
	return fmt.Sprintf("| %s | %s |\n", l.name, strings.Join(leaning, "; "))
}
