package hostfs

import "github.com/sandboxrun/sandboxrun/rootfs/pathname"

// Inode is the identity of a host file.
type Inode struct{ Dev, Ino uint64 }

// HardLinks searches directories for names of files that are Wanted, and calls Found with each and with what Wanted says of the file.
// Directories in Skip are left out.
type HardLinks struct {
	Tree   Tree
	Skip   map[string]bool
	Wanted map[Inode]string
	Found  func(host, from string)
}

// Walk searches one directory, or looks at one file.
func (w *HardLinks) Walk(p string) {
	if w.Skip[p] {
		return
	}
	info, err := w.Tree.Lstat(p)
	if err != nil {
		return
	}
	if !info.Mode.IsDir() {
		if from, ok := w.Wanted[info.Inode()]; ok {
			w.Found(p, from)
		}
		return
	}
	names, err := w.Tree.ReadDir(p)
	if err != nil {
		return // what the launcher cannot read the program cannot either
	}
	for _, name := range names {
		w.Walk(pathname.Join(p, name))
	}
}
