package compile

import (
	"io/fs"
	"maps"
	"path"
	"slices"

	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
)

// byteCode is the directory beside Python modules that has their byte code.
const byteCode = "__pycache__"

// findGone takes the masks of what should be absent away where an overlay can hide the name, and has the mount of the directory around it
// do so. The other masks stay, and read as empty.
func (d *denier) findGone() {
	without := map[string]*rootfs.Mount{} // by target
	for _, target := range slices.Sorted(maps.Keys(d.masks)) {
		mask := d.masks[target]
		if !d.absentBy[mask.From] || d.masked(pathname.Parent(target)) {
			continue
		}
		dir, name := pathname.Parent(target), path.Base(target)
		if path.Base(dir) == byteCode {
			dir, name = pathname.Parent(dir), path.Join(byteCode, name)
		}
		m, why := d.overlay(dir)
		if why == "" && d.hosts[pathname.Join(m.Source, name)] == "" {
			why = "the policy shows it by itself" // or it stands for what is in it
		}
		if why != "" {
			d.leaveEmpty(mask, dir, name, why)
			continue
		}
		if without[dir] == nil {
			without[dir] = m
		}
		without[dir].Without = append(without[dir].Without, name)
		delete(d.masks, target)
		d.gone[target] = true
		d.compiler.gone = append(d.compiler.gone, rootfs.Gone{Inside: target, Host: pathname.Join(m.Source, name), Dir: mask.Dir, Link: mask.Link, From: mask.From})
	}
	for dir, m := range without {
		class := d.classes[d.index.Cover(dir).Target]
		d.index.Add(m)
		d.classes[dir] = class
	}
}

// overlay is the mount that shows a directory and can have names left out, or why there is none.
func (d *denier) overlay(dir string) (m *rootfs.Mount, why string) {
	shown := d.index.Cover(dir)
	if shown == nil || shown.Kind != rootfs.MountBind || shown.Source == "" || !shown.Dir {
		return nil, "the policy shows it by itself"
	}
	bind := *shown
	bind.Source, bind.Target, bind.Without = pathname.Rebase(dir, shown.Target, shown.Source), dir, nil
	info, err := d.tree.Lstat(bind.Source)
	switch {
	case err != nil || !info.Mode.IsDir():
		return nil, "its directory cannot be looked at"
	case shown.Writable || d.writables.MayReplace(pathname.Join(bind.Source, "x")):
		return nil, "the policy lets programs write there"
	case !d.open(info.Mode, info.UID):
		return nil, "not everybody may list the directory"
	case slices.ContainsFunc(d.mountPoints, func(mp string) bool { return pathname.Below(mp, bind.Source) }):
		return nil, "the host has something mounted below the directory"
	}
	for _, o := range d.Overlays {
		if o.Source == bind.Source && o.Target == dir {
			return &bind, o.Why
		}
	}
	if !slices.ContainsFunc(d.overlays, func(o rootfs.Overlay) bool { return o.Source == bind.Source && o.Target == dir }) {
		d.overlays = append(d.overlays, rootfs.Overlay{Source: bind.Source, Target: dir})
	}
	return nil, "one exec alone sees it there" // if it is not asked again
}

// open reports whether the program may list a directory: the root of an overlay is open to everybody.
func (d *denier) open(mode fs.FileMode, uid int) bool {
	const owner, others = 0o500, 0o005
	return mode&others == others || uid == d.User.UID && !d.User.Apart && mode&owner == owner
}

// leaveEmpty notes what is empty and should be absent.
func (d *denier) leaveEmpty(mask *rootfs.Mount, dir, name, why string) {
	for i := range d.emptied {
		if e := &d.emptied[i]; e.Dir == dir && e.Why == why {
			e.Names = append(e.Names, name)
			return
		}
	}
	d.emptied = append(d.emptied, rootfs.Emptied{Dir: dir, Names: []string{name}, Why: why, From: mask.From})
}
