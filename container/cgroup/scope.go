package cgroup

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/trust"
	"github.com/sandboxrun/sandboxrun/spec"
)

const (
	scopePrefix = "scope:" // of what is noted, before the unit's name
	scopeSuffix = ".scope"

	systemdName    = "org.freedesktop.systemd1"
	systemdPath    = "/org/freedesktop/systemd1"
	systemdManager = systemdName + ".Manager"
	unitExists     = systemdName + ".UnitExists"
	noSuchUnit     = systemdName + ".NoSuchUnit"

	// How long systemd may take. Of one that is asked whether it is there more can be expected.
	askTimeout = 5 * time.Second
	jobTimeout = 30 * time.Second
)

// probeScope is the second rung.
func (m *hierarchies) probeScope() (spec.Cgroups, error) {
	if !m.systemd {
		return spec.Cgroups{}, errors.New("no systemd")
	}
	mount, _, err := m.unified()
	if err != nil {
		return spec.Cgroups{}, nil // it has no group of version 2 to give, which the first rung has said
	}
	sd, err := dialSystemd(os.Geteuid(), askTimeout)
	if err != nil {
		return spec.Cgroups{}, err
	}
	defer sd.close()
	group, err := sd.property("ControlGroup")
	if err != nil {
		return spec.Cgroups{}, err
	}
	dir, ok := mount.dir("/" + strings.TrimPrefix(group, "/"))
	if !ok {
		return spec.Cgroups{}, fmt.Errorf("systemd's control group %s is not below %s", group, mount.point)
	}
	has, err := readWords(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return spec.Cgroups{}, err
	}
	facts := spec.Cgroups{Kind: spec.BySystemd, Controllers: intersect(wanted(), has)}
	if lacking := subtract(wanted(), has); len(lacking) > 0 {
		return facts, fmt.Errorf("systemd at %s has no controller for %s", dir, strings.Join(lacking, ", "))
	}
	return facts, nil
}

func makeScope(
	facts spec.Cgroups, name string, pid int, l Limits, note func(string) error,
) (dirs map[string]string, err error) {
	unit := name + scopeSuffix
	if err := note(scopePrefix + unit); err != nil {
		return nil, err
	}
	sd, err := dialSystemd(os.Geteuid(), jobTimeout)
	if err != nil {
		return nil, err
	}
	defer sd.close()
	if err := sd.startScope(unit, scopeProperties(unit, pid, facts.Controllers, l)); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = sd.call("StopUnit", nil, unit, "replace") // this error is reported
		}
	}()
	dir, err := scopeDir(pid, unit)
	if err != nil {
		return nil, err
	}
	if err := note(dir); err != nil {
		return nil, err
	}
	// Below a group that gives controllers to others process 1 has to have one of its own.
	inner := filepath.Join(dir, initGroup)
	if err := makeGroup(inner); err != nil {
		return nil, err
	}
	if err := WriteControl(filepath.Join(inner, "cgroup.procs"), strconv.Itoa(pid)); err != nil {
		return nil, err
	}
	if err := furnish(dir, facts.Controllers, l); err != nil {
		return nil, err
	}
	dirs = map[string]string{}
	for _, c := range facts.Controllers {
		dirs[c] = dir
	}
	return dirs, nil
}

// scopeDir is the directory of the scope that a process has been put in.
func scopeDir(pid int, unit string) (string, error) {
	m, err := thisMachine()
	if err != nil {
		return "", err
	}
	mount, _, err := m.unified()
	if err != nil {
		return "", err
	}
	text, err := ReadControl(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return "", err
	}
	group := ownGroups(text)[""]
	dir, ok := mount.dir(group)
	if !ok || filepath.Base(dir) != unit {
		return "", fmt.Errorf("process %d is in %q, and not in the scope %s that it was started in", pid, group, unit)
	}
	return dir, nil
}

// removeScope stops a scope and waits until systemd has done that. The directory must not be removed behind its back: the
// kernel says with some delay that a group is empty, and not at all once it is gone, and then the unit stays for ever.
func removeScope(unit string) error {
	if !shaped(unit) || !strings.HasSuffix(unit, scopeSuffix) {
		return fmt.Errorf("%q is no sandbox's scope", unit)
	}
	sd, err := dialSystemd(os.Geteuid(), jobTimeout)
	if err != nil {
		return nil // with a user's systemd all its scopes end
	}
	defer sd.close()
	err = sd.job("StopUnit", unit, "replace")
	if isNamed(err, noSuchUnit) {
		return nil
	}
	return err
}

// Reach makes it possible to start processes of ours in a group below dir, which clone3 refuses with EACCES where we
// are too far from it: a user's login session is in a group that is not the user's, beside the one in which his systemd
// makes scopes. It has that put this whole process in a scope of its own, beside the sandbox's, which ends with the process.
// What can be reached already costs no more than a look.
func Reach(dir string) error {
	m, err := thisMachine()
	if err != nil {
		return err
	}
	mount, own, err := m.unified()
	if err != nil || reachable(own, dir, mount.point) {
		return err
	}
	sd, err := dialSystemd(os.Geteuid(), jobTimeout)
	if err != nil {
		return fmt.Errorf("reach control group %s: %w", dir, err)
	}
	defer sd.close()
	pid := os.Getpid()
	err = sd.startScope("sandboxrun-launcher-"+strconv.Itoa(pid)+scopeSuffix, []unitProperty{
		{"Description", dbus.MakeVariant("launcher of sandboxes")},
		{"PIDs", dbus.MakeVariant([]uint32{uint32(pid)})},
		{"CollectMode", dbus.MakeVariant("inactive-or-failed")},
		{"TasksMax", dbus.MakeVariant(^uint64(0))},
	})
	if err != nil {
		return fmt.Errorf("reach control group %s: %w", dir, err)
	}
	return nil
}

// reachable reports whether a process in the group own can start others in dir: it takes the right to move processes in the
// nearest group above both.
func reachable(own, dir, top string) bool {
	above := own
	for above != top && !strings.HasPrefix(dir, above+"/") {
		above = filepath.Dir(above)
	}
	return unix.Faccessat(unix.AT_FDCWD, filepath.Join(above, "cgroup.procs"), unix.W_OK, unix.AT_EACCESS) == nil
}

// Systemd is a connection to the caller's service manager: the system's for root, his own for a user.
type systemd struct {
	ctx     context.Context //nolint:containedctx // it bounds the connection's whole life
	cancel  context.CancelFunc
	conn    *dbus.Conn
	manager dbus.BusObject
}

// systemdBus is the socket of its bus. It does not depend on the environment, so that a delete finds what a create of
// another session has made. systemd's own socket, where systemctl asks, is no way around a bus that is missing: there it
// loses a message that comes too soon after the greeting (seen with 252), and so now and then does not answer.
func systemdBus(uid int) string {
	if uid == 0 {
		return "/run/dbus/system_bus_socket"
	}
	return "/run/user/" + strconv.Itoa(uid) + "/bus"
}

func dialSystemd(uid int, timeout time.Duration) (*systemd, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	sock, err := dialOwn(ctx, systemdBus(uid), uid)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("no bus to ask systemd on: %w", err)
	}
	conn, err := dbus.NewConn(sock, dbus.WithContext(ctx))
	if err != nil {
		cancel()
		_ = sock.Close()
		return nil, err
	}
	sd := &systemd{ctx: ctx, cancel: cancel, conn: conn, manager: conn.Object(systemdName, systemdPath)}
	err = conn.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(uid))})
	if err == nil {
		err = conn.Hello()
	}
	if err != nil {
		sd.close()
		return nil, fmt.Errorf("connect to %s: %w", systemdBus(uid), err)
	}
	return sd, nil
}

// dialOwn connects to a socket on which a process of uid listens. It has to be one that we can see: a systemd outside of our
// PID namespace would take our process numbers for those of others.
func dialOwn(ctx context.Context, path string, uid int) (net.Conn, error) {
	if dir := filepath.Dir(path); !trust.OwnedDir(dir, uid) {
		return nil, fmt.Errorf("%s is not there, or not of uid %d", dir, uid)
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	var cred *unix.Ucred
	var cerr error
	err = raw.Control(func(fd uintptr) { cred, cerr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	switch err = errors.Join(err, cerr); {
	case err != nil:
	case int(cred.Uid) != uid:
		err = fmt.Errorf("on %s listens uid %d", path, cred.Uid)
	case cred.Pid == 0:
		err = fmt.Errorf("on %s listens somebody outside of our PID namespace", path)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

func (sd *systemd) close() {
	_ = sd.conn.Close()
	sd.cancel()
}

func (sd *systemd) call(method string, result any, args ...any) error {
	call := sd.manager.CallWithContext(sd.ctx, systemdManager+"."+method, 0, args...)
	err := call.Err
	if err == nil && result != nil {
		err = call.Store(result)
	}
	if err != nil {
		return fmt.Errorf("ask systemd for %s: %w", method, err)
	}
	return nil
}

func (sd *systemd) property(name string) (string, error) {
	var v dbus.Variant
	var value string
	err := sd.manager.CallWithContext(sd.ctx, "org.freedesktop.DBus.Properties.Get", 0, systemdManager, name).Store(&v)
	if err == nil {
		err = v.Store(&value)
	}
	if err != nil {
		return "", fmt.Errorf("ask systemd for its %s: %w", name, err)
	}
	return value, nil
}

// job calls a method that begins a job, and waits until that has ended.
func (sd *systemd) job(method string, args ...any) error {
	signals := make(chan *dbus.Signal, 16)
	sd.conn.Signal(signals)
	defer sd.conn.RemoveSignal(signals)
	err := sd.conn.AddMatchSignalContext(sd.ctx, dbus.WithMatchInterface(systemdManager), dbus.WithMatchMember("JobRemoved"))
	if err != nil {
		return fmt.Errorf("listen to systemd: %w", err)
	}
	var path dbus.ObjectPath
	if err := sd.call(method, &path, args...); err != nil {
		return err
	}
	for {
		select {
		case <-sd.ctx.Done():
			return fmt.Errorf("ask systemd for %s: it was not done in time: %w", method, sd.ctx.Err())
		case s := <-signals:
			if s == nil {
				return fmt.Errorf("ask systemd for %s: it has closed the connection", method)
			}
			// JobRemoved(number, job, unit, result)
			if s.Name != systemdManager+".JobRemoved" || len(s.Body) != 4 || s.Body[1] != path {
				continue
			}
			if s.Body[3] != "done" {
				return fmt.Errorf("ask systemd for %s: the job ended as %q", method, s.Body[3])
			}
			return nil
		}
	}
}

type unitProperty struct {
	Name  string
	Value dbus.Variant
}

func (sd *systemd) startScope(unit string, properties []unitProperty) error {
	var none []struct {
		Name       string
		Properties []unitProperty
	}
	for pause := time.Millisecond; ; pause *= 2 {
		err := sd.job("StartTransientUnit", unit, "fail", properties, none)
		// The last one of this name may have ended so recently that systemd has not forgotten it yet.
		if !isNamed(err, unitExists) || pause > time.Second {
			return err
		}
		time.Sleep(pause)
	}
}

// scopeProperties are those of a sandbox's scope, around process 1. The limits are given to systemd too, though we write
// them all the same: it writes its own again whenever somebody reloads it.
func scopeProperties(unit string, pid int, controllers []string, l Limits) []unitProperty {
	list := []unitProperty{
		{"Description", dbus.MakeVariant("sandbox " + strings.TrimSuffix(unit, scopeSuffix))},
		{"PIDs", dbus.MakeVariant([]uint32{uint32(pid)})},
		{"Delegate", dbus.MakeVariant(true)},
		{"CollectMode", dbus.MakeVariant("inactive-or-failed")}, // leave nothing behind, however it ends
		{"KillSignal", dbus.MakeVariant(int32(unix.SIGKILL))},   // process 1 of a PID namespace hears no other
	}
	tasks := ^uint64(0) // not systemd's default
	for _, c := range intersect(l.needs(), controllers) {
		switch c {
		case "memory":
			list = append(list, unitProperty{"MemoryMax", dbus.MakeVariant(uint64(l.Memory))},
				unitProperty{"MemorySwapMax", dbus.MakeVariant(uint64(0))})
		case "pids":
			tasks = uint64(l.Pids)
		case "cpu":
			perSecond := uint64(l.quota()) * (1_000_000 / Period)
			list = append(list, unitProperty{"CPUQuotaPerSecUSec", dbus.MakeVariant(perSecond)})
		}
	}
	return append(list, unitProperty{"TasksMax", dbus.MakeVariant(tasks)})
}

func isNamed(err error, name string) bool {
	var e dbus.Error
	return errors.As(err, &e) && e.Name == name
}
