package container

import (
	"cmp"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/deny"
	"github.com/sandboxrun/sandboxrun/container/lookup"
	"github.com/sandboxrun/sandboxrun/container/puts"
	"github.com/sandboxrun/sandboxrun/container/result"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/spec"
	"github.com/sandboxrun/sandboxrun/transfer"
)

// carriedBy is what an exec that runs carries.
type carriedBy struct {
	collect []Collect
	most    int64  // bytes of what is collected into the result
	files   *Files // of its view, while it runs and after that
	failed  error  // to open them
}

// carry covers what is denied and puts what the exec brings into its command. What is fresh hides covers below it, so it comes last.
func (r *Running) carry(req Request, cmd *forkexec.Command, in lookup.Root, x *spec.Extra) (err error) {
	if r.denied, err = deny.Open(r.sb.state.Launch.Watch, in); err != nil {
		return err
	}
	cmd.Mounts = append(cmd.Mounts, r.denied.Cover()...)
	r.warnings = r.denied.Warnings()
	if cmd.Puts, err = puts.Plain(req.Put); err != nil {
		return err
	}
	for _, p := range cmd.Puts {
		if l := r.limits.File; l > 0 && int64(len(p.Data)) > l {
			return fail(fault.PutFailed, "limits.file of the policy says how large a file may be", "put %q: it is larger than %d bytes", p.Name, l)
		}
	}
	fresh, err := r.sb.freshMounts(req, cmd.Dir, in)
	if err != nil {
		return err
	}
	for _, m := range fresh {
		if r.limits.WatchMemory {
			cmd.Limits.Tmpfs = append(slices.Clip(cmd.Limits.Tmpfs), m.Target)
		}
	}
	cmd.Mounts = append(cmd.Mounts, fresh...)
	for _, c := range req.Collect {
		if _, err := transfer.Clean(c.Path); err != nil {
			return puts.TransferError("collect", err)
		}
	}
	r.carried.collect, r.carried.most = req.Collect, cmp.Or(req.CollectMax, math.MaxInt64)
	cmd.KeepView = len(req.Collect) > 0
	return r.show(x, cmd, in)
}

// overflowed makes that the outcome, where nothing else has ended the program before.
func (r *Running) overflowed(res *result.Result) {
	if r.streams.Overflowed() && res.Signal != nil && *res.Signal == unix.SignalName(unix.SIGKILL) {
		res.Outcome, res.Signal, res.Killed = result.OutputExceeded, nil, true
		res.SetFinding(result.FindingOutput)
	}
}

// handOver reads what is to be collected. All processes of the exec are gone; those of others may still change what is there.
func (r *Running) handOver(res *result.Result) {
	if data, total, is := r.streams.Answered(); is {
		res.Answer = &result.Answer{Bytes: total, Truncated: total > int64(len(data))}
		res.Answer.Text, res.Answer.Base64 = result.AsText(data)
	}
	files, err := r.carried.files, r.carried.failed
	r.carried.files = nil
	if err != nil {
		res.Collected = append(res.Collected, result.Collected{Path: ".", Error: result.ErrorOf(err)})
	}
	if files == nil {
		return
	}
	defer files.Close()
	left := r.carried.most
	for _, c := range r.carried.collect {
		collect(res, files, r.sb, c, &left)
	}
}

// collect takes what it puts into the result off what all may be together.
func collect(r *result.Result, files *Files, sb *Sandbox, c Collect, all *int64) {
	if c.To != "" {
		collectTo(r, files, sb, c)
		return
	}
	names, err := files.Glob(c.Path)
	if err != nil {
		r.Collected = append(r.Collected, result.Collected{Path: c.Path, Error: result.ErrorOf(puts.TransferError("collect", err))})
		return
	}
	left := cmp.Or(c.Max, transfer.DefaultMax)
	for _, name := range names {
		var m transfer.Memory
		dropped, err := files.Get(name, max(min(left, *all), 1), &m)
		if err != nil {
			r.Collected = append(r.Collected, result.Collected{Path: name, Error: result.ErrorOf(err)})
			continue
		}
		r.Dropped = append(r.Dropped, dropped...)
		for _, f := range m.Files {
			left -= int64(len(f.Data))
			*all -= int64(len(f.Data))
			r.Collected = appendFile(r.Collected, path.Join(name, f.Path), f)
		}
	}
}

func appendFile(list []result.Collected, name string, f transfer.File) []result.Collected {
	if !f.Mode.IsRegular() {
		return list // a directory is there by its files; a link says nothing in an answer
	}
	c := result.Collected{Path: name, Bytes: int64(len(f.Data))}
	c.Text, c.Base64 = result.AsText(f.Data)
	return append(list, c)
}

func collectTo(r *result.Result, files *Files, sb *Sandbox, c Collect) {
	done := result.Collected{Path: c.Path, To: c.To}
	dropped, err := sb.GetTo(files, c.Path, c.To, c.Max)
	r.Dropped = append(r.Dropped, dropped...)
	if err != nil {
		done.Error = result.ErrorOf(err)
	}
	r.Collected = append(r.Collected, done)
}

// ExportTo is GetTo that keeps holes of files, or writes an archive if the new path ends in .tar.
func (sb *Sandbox) ExportTo(files *Files, name, to string, limit int64) ([]transfer.Dropped, error) {
	sink, err := sb.HostSink(to)
	if err != nil {
		return nil, err
	}
	defer sink.Parent.Close()
	sink.Sparse = true
	if !strings.HasSuffix(to, ".tar") {
		return getTo(files, name, to, limit, sink)
	}
	archive := &transfer.TarSink{Parent: sink.Parent, Name: sink.Name}
	dropped, err := files.Get(name, limit, archive)
	if cerr := archive.Close(err != nil); err == nil && cerr != nil {
		err = fmt.Errorf("write %q: %w", to, cerr)
	}
	return dropped, err
}

// GetTo writes a file or a directory to a new path on the host.
func (sb *Sandbox) GetTo(files *Files, name, to string, limit int64) ([]transfer.Dropped, error) {
	sink, err := sb.HostSink(to)
	if err != nil {
		return nil, err
	}
	defer sink.Parent.Close()
	return getTo(files, name, to, limit, sink)
}

func getTo(files *Files, name, to string, limit int64, sink *transfer.HostSink) ([]transfer.Dropped, error) {
	dropped, err := files.Get(name, limit, sink)
	if cerr := sink.Close(); err == nil && cerr != nil {
		err = fmt.Errorf("write %q: %w", to, cerr)
	}
	return dropped, err
}
