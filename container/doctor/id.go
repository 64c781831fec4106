package doctor

import (
	"os"

	"github.com/sandboxrun/sandboxrun/container/idmap"
)

// idFacts are what came of giving a program an id of its own.
type idFacts struct {
	looked bool
	root   bool   // the launcher is the machine's root: only then it is needed
	not    string // why it cannot be had; empty: it can
	dir    string // the current directory
	idmap  error  // why that cannot be idmapped
}

func findIDs() idFacts {
	f := idFacts{looked: true, root: idmap.MachineRoot()}
	if !f.root {
		return f
	}
	if f.not = idmap.NotApart(); f.not != "" {
		return f
	}
	var err error
	if f.dir, err = os.Getwd(); err == nil {
		f.idmap = idmap.Tester(idmap.FirstID, os.Geteuid(), os.Getegid())(f.dir)
	}
	return f
}

func (f *facts) idRow() Row {
	const name = "program_id"
	switch id := f.id; {
	case !id.looked:
		return bad(name, notTried, "whether a program would be root to the host is not known", f.firstFix())
	case !id.root:
		return good(name, "the caller's, who is not the machine's root")
	case id.not != "":
		return bad(name, id.not, "a program would be root to the host: it is refused, or told of where the policy does with less",
			"start it with these capabilities, or as another user")
	case id.idmap != nil:
		return weaker(name, "its own, but "+printable(id.dir)+" cannot be idmapped: "+id.idmap.Error(),
			"what is granted there for writing is refused, or its program is root to the host where the policy does with less",
			"cd to a directory of ext4, xfs or btrfs")
	}
	return good(name, "its own, which owns nothing; "+printable(f.id.dir)+" can be idmapped")
}
