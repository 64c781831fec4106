package pool

import (
	"net"
	"strconv"
	"time"

	"github.com/sandboxrun/sandboxrun/container"
	"github.com/sandboxrun/sandboxrun/container/owner"
)

// Variable names the pool to the commands that its command runs.
const Variable = "SANDBOXRUN_POOL"

// Want is what a command wants of a pool.
type Want struct {
	ID     string
	Run    bool   // one program is run in it; it belongs to this process
	Policy string // as --policy has it; empty: none was given
	Owner  *owner.Owner
	Record string // a directory, absolute; or empty
	Env    bool   // the program gets variables of its own
}

// Claim asks the pool of a name for a sandbox. The error says why there is none: then the sandbox is to be made as always. The pool compares
// everything that its policy depends on, but not the files that it is given by w: who uses them looks whether a program can see them.
// It also returns the directory that a run starts in, if that is the caller's.
func Claim(s *container.Store, name string, w Want) (sb *container.Sandbox, start string, err error) {
	dir, err := s.PoolDir(name)
	if err != nil {
		return nil, "", err
	}
	defer dir.Close()
	conn, err := net.DialUnix("unixpacket", nil, address(dir))
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, "", err
	}
	if err := send(conn, w.message()...); err != nil {
		return nil, "", err
	}
	answer, err := receive(conn)
	if err != nil {
		return nil, "", err
	}
	if len(answer) != 3 || answer[0] != wordOK {
		return nil, "", refused(answer)
	}
	if sb, err = s.Open(answer[1]); err != nil {
		return nil, "", err
	}
	if err := send(conn, wordMine); err != nil {
		sb.Close()
		return nil, "", err
	}
	return sb, answer[2], nil
}

func (w Want) message() []string {
	kind, pid, start, options := kindCreate, "", "", ""
	if w.Run {
		kind = kindRun
	}
	if w.Owner != nil {
		pid, start = strconv.Itoa(w.Owner.PID), strconv.FormatUint(w.Owner.StartTime, 10)
	}
	if w.Env {
		options = optionEnv
	}
	return []string{kind, w.ID, w.Policy, pid, start, w.Record, options}
}
