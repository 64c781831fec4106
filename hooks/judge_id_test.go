package hooks

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

func TestJudgeID(t *testing.T) {
	const why = "the policy does with it"
	for _, c := range []struct {
		what   string
		change func(*Subject, *Facts)
		check  string
		want   Outcome
	}{
		{"no message", func(_ *Subject, f *Facts) { f.HostIDErr = errors.New("x") }, "program_id", NotTested},
		{"another user", func(_ *Subject, f *Facts) { f.HostID[0]++ }, "program_id", Broken},
		{"another group", func(_ *Subject, f *Facts) { f.HostID[1] = 0 }, "program_id", Broken},
		{"root", func(s *Subject, f *Facts) { s.ID, f.HostID = [2]uint32{}, [2]uint32{} }, "program_id", Broken},
		{"root, as the policy lets it be", func(s *Subject, f *Facts) { s.ID, f.HostID, s.MayOwn = [2]uint32{}, [2]uint32{}, why }, "program_id", NotTested},
		{"nothing can be made", func(_ *Subject, f *Facts) { f.Paths[1].Made = nil }, "program_id", Held},
		{"a file of somebody else's", func(_ *Subject, f *Facts) { f.Paths[1].Made = &Node{UID: 2020000000} }, "program_id", Broken},
		{"a file that cannot be looked at", func(_ *Subject, f *Facts) { f.Paths[1].Made = &Node{Err: unix.EOPNOTSUPP} }, "program_id", NotTested},
		{"a mode can be changed", func(_ *Subject, f *Facts) { f.Paths[8].Changes[0].Err = nil }, "foreign_files_kept", Broken},
		{"it was no file, but might have been removed", func(_ *Subject, f *Facts) { f.Paths[8].Changes[1].Err = unix.EISDIR }, "foreign_files_kept", Broken},
		{"as the policy lets it be", func(s *Subject, f *Facts) { f.Paths[8].Changes[0].Err, s.MayOwn = nil, why }, "foreign_files_kept", NotTested},
		{"not made", func(_ *Subject, f *Facts) { f.Paths[8].Changes[0].Err = unix.ENOSYS }, "foreign_files_kept", NotTested},
		{"gone", func(_ *Subject, f *Facts) { f.Paths[8].Inside.Err = unix.ENOENT }, "foreign_files_kept", NotTested},
	} {
		s, f := sound()
		c.change(s, f)
		for _, r := range Judge(s, f) {
			want := usual(s, r.Name)
			if r.Name == c.check {
				want = c.want
			}
			if r.Result != want {
				t.Errorf("%s: %s is %s (%s), want %s", c.what, r.Name, r.Result, r.Detail, want)
			}
		}
	}
}
