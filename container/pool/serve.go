package pool

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sandboxrun/sandboxrun/container"
	"github.com/sandboxrun/sandboxrun/container/owner"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

var (
	errNone    = errors.New("no sandbox is ready")
	errChanged = errors.New("those that were ready would not be made so now")
	errCaller  = errors.New("the policy means something else to this caller")
	errRequest = errors.New("it is no request to a pool")
	errPolicy  = errors.New("the pool has another policy")
)

// refused is the answer of a pool that gives nothing.
func refused(answer []string) error {
	if len(answer) == 2 && answer[0] == wordNo {
		return errors.New(answer[1])
	}
	return errors.New("the pool has ended")
}

// Listener is where a pool is asked.
type Listener struct {
	Name string // for Variable
	dir  *os.File
	at   *net.UnixListener
	all  sync.WaitGroup
}

// Serve begins to answer the commands of the caller's that know the pool's name.
func (p *Pool) Serve() (*Listener, error) {
	l := &Listener{Name: strings.ToLower(rand.Text())}
	var err error
	if l.dir, err = p.config.Store.MakePoolDir(l.Name); err != nil {
		return nil, err
	}
	if l.at, err = net.ListenUnix("unixpacket", address(l.dir)); err != nil {
		l.dir.Close()
		return nil, fmt.Errorf("listen for commands: %w", err)
	}
	l.at.SetUnlinkOnClose(false) // its name is that of a descriptor; the directory is swept
	l.all.Add(1)
	go l.accept(p.answer)
	return l, nil
}

// accept waits for a connection and serves it. Another waits for the next meanwhile: so whoever connects does not wait for a thread to be woken.
func (l *Listener) accept(serve func(*net.UnixConn)) {
	conn, err := l.at.AcceptUnix()
	for err != nil {
		if errors.Is(err, net.ErrClosed) {
			l.all.Done()
			return
		}
		time.Sleep(again) // there are too many open files
		conn, err = l.at.AcceptUnix()
	}
	go l.accept(serve)
	serve(conn)
}

// Close ends it. The directory goes with the next sweep.
func (l *Listener) Close() {
	_ = l.at.Close()
	l.all.Wait()
	l.dir.Close()
}

// answer serves one connection.
func (p *Pool) answer(conn *net.UnixConn) {
	defer func() { _ = conn.Close() }()
	if conn.SetDeadline(time.Now().Add(patience)) != nil {
		return
	}
	request, err := receive(conn)
	if err != nil {
		return
	}
	done := p.answering()
	defer done()
	if len(request) == 2 && request[0] == kindDelete {
		_ = send(conn, p.remove(conn, request[1])...)
		return
	}
	sb, dir, err := p.claim(conn, request)
	if err != nil {
		_ = send(conn, wordNo, err.Error()) // it finds out by the end of the connection
		return
	}
	word, err := sb.give(conn, dir)
	if errors.Is(err, errChanged) {
		defer p.dropChanged()
	}
	if err != nil { // its claimer has not got it
		sb.drop()
		return
	}
	if word == wordMine {
		done()
		sb.AwaitEnd()
		return
	}
	defer p.runs(conn)()
	if conn.SetDeadline(time.Time{}) == nil {
		_, _ = receive(conn) // nothing but the end comes
	}
	sb.KillInit()
	if err := sb.Delete(nil); err != nil {
		p.config.Trouble(err)
	}
}

// remove deletes a sandbox for the command delete, whose start takes longer. Where that fails the command does it, and reports why it fails.
func (p *Pool) remove(conn *net.UnixConn, id string) []string {
	err := p.isLikeUs(conn)
	if err == nil {
		err = p.config.Store.Delete(id, nil)
	}
	if err != nil {
		return []string{wordNo, err.Error()}
	}
	return []string{wordOK}
}

// isLikeUs has an error where the caller could not do by itself what this process can.
func (p *Pool) isLikeUs(conn *net.UnixConn) error {
	who, err := meet(conn)
	if err != nil {
		return err
	}
	defer who.close()
	theirs, err := who.circumstances()
	if err != nil {
		return err
	}
	ours, err := ownCircumstances()
	if err != nil {
		return err
	}
	return theirs.other(&ours)
}

// give tells a claimer which sandbox it has, and waits for the claimer's word.
func (g *given) give(conn net.Conn, dir string) (word string, err error) {
	answer := []string{wordOK, g.State().ID, dir}
	if g.named == nil {
		if err := send(conn, answer...); err != nil {
			return "", err
		}
		return taken(conn)
	}
	if err := send(conn, append(answer, g.named.Was)...); err != nil {
		return "", err
	}
	if err := g.settle(); err != nil {
		_ = send(conn, wordNo, err.Error())
		return "", err
	}
	if err := send(conn, wordSure); err != nil {
		return "", err
	}
	return taken(conn)
}

// taken is the word by which a claimer takes a sandbox.
func taken(conn net.Conn) (string, error) {
	text, err := receive(conn)
	if err == nil && !slices.Equal(text, []string{wordMine}) && !slices.Equal(text, []string{wordOnce}) {
		err = errRequest
	}
	return strings.Join(text, ""), err
}

// claim finds out who asks, and hands a sandbox over.
func (p *Pool) claim(conn *net.UnixConn, request []string) (*given, string, error) {
	if len(request) != fields {
		return nil, "", errRequest
	}
	kind, id, named, record, options := request[0], request[1], request[2], request[5], strings.Split(request[6], ",")
	who, err := meet(conn)
	if err != nil {
		return nil, "", err
	}
	defer who.close()
	theirs, err := who.circumstances()
	if err != nil {
		return nil, "", err
	}
	o := container.Options{Record: record}
	if o.Owner, err = ownerOf(kind, request[3], request[4], who.pid); err != nil {
		return nil, "", err
	}
	sb, err := p.take(id, o, slices.Contains(options, optionEarly), func(e *entry) error {
		d := e.decided
		if err := theirs.other(&e.made); err != nil {
			return err
		}
		switch {
		case !p.meant(kind, named, who.cwd):
			return errPolicy
		case slices.Contains(options, optionEnv) && (d.Policy.Network.EnvURLs || d.Plan.Relay != nil), slices.Contains(options, optionQuiet) && len(e.Warnings()) > 0,
			d.Plan.Exec.CoreLimit() > who.core, !d.means(who.env):
			return errCaller
		}
		return nil
	})
	if err != nil {
		return nil, "", err
	}
	dir := ""
	if kind == kindRun && sb.decided.Policy.StaysInPlace() && sb.ShowsDir(who.cwd) {
		dir = who.cwd
	}
	return sb, dir, nil
}

// ownerOf is the process that a sandbox is to end with: one that runs a single program, with that command.
func ownerOf(kind, pid, start string, caller int) (*owner.Owner, error) {
	if kind == kindRun {
		return &owner.Owner{PID: caller}, nil
	}
	if pid == "" {
		return nil, nil
	}
	at, err := strconv.ParseUint(start, 10, 64)
	if err != nil {
		return nil, errRequest
	}
	if pid == ownerFound {
		return owner.FindOwnerOf(caller, int(at))
	}
	n, err := strconv.Atoi(pid)
	if err != nil {
		return nil, errRequest
	}
	return &owner.Owner{PID: n, StartTime: at}, nil
}

// meant reports whether a command line names the pool's policy.
func (p *Pool) meant(kind, named, cwd string) bool {
	switch _, preset := policy.Preset(named); {
	case kind != kindRun && kind != kindCreate, named == "-":
		return false
	case named == "" && kind == kindCreate:
		return p.config.Policy == "default" // preset, as create has it
	case named == "":
		return p.config.Policy == "" && kind == kindRun && cwd == p.config.Dir
	case preset:
		return named == p.config.Policy
	case filepath.IsAbs(named):
		return filepath.Clean(named) == p.config.Policy
	}
	return filepath.Join(cwd, named) == p.config.Policy
}
