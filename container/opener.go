package container

import (
	"sync"

	"github.com/sandboxrun/sandboxrun/transfer"
)

// This file opens files with the rights of a sandbox's programs.

// programOpener opens files with the rights of a sandbox's programs. A thread for it costs a third of a millisecond, so it is kept.
type programOpener struct {
	mu     sync.Mutex
	opener *transfer.Opener
}

func (p *programOpener) get(uid, gid int) (*transfer.Opener, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.opener != nil {
		return p.opener, nil
	}
	var err error
	p.opener, err = transfer.NewOpener(uid, gid)
	return p.opener, err
}

func (p *programOpener) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.opener != nil {
		p.opener.Close()
		p.opener = nil
	}
}
