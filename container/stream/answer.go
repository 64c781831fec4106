package stream

import (
	"io"
	"sync"

	"github.com/sandboxrun/sandboxrun/forkexec"
)

// answerMax is how much is kept of an answer, in bytes.
const answerMax = 1 << 20

// answerKeeper keeps the beginning.
type answerKeeper struct {
	mu    sync.Mutex
	data  []byte
	total int64
}

func (k *answerKeeper) Write(p []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.total += int64(len(p))
	k.data = append(k.data, p[:min(len(p), answerMax-len(k.data))]...)
	return len(p), nil
}

// connectAnswer makes descriptor 3.
func (s *Streams) connectAnswer(cmd *forkexec.Command) error {
	if !s.Answer {
		return nil
	}
	inner, outer, err := s.pipe(false, cmd.UID, cmd.GID)
	if err != nil {
		return err
	}
	s.answer = &answerKeeper{}
	cmd.Result = inner
	to := s.clean(s.answer)
	s.add(true, func() { pump(to, outer) })
	return nil
}

// Answered is what the program has written to descriptor 3, the beginning of it and how much it was; is says whether it had one.
func (s *Streams) Answered() (data []byte, total int64, is bool) {
	if s.answer == nil {
		return nil, 0, false
	}
	return s.answer.data, s.answer.total, true
}

// guard ends the exec when one of its streams gets too large, where that is asked for.
func (s *Streams) guard(to io.Writer) io.Writer {
	if !s.KillOver {
		return to
	}
	return &outputGuard{to: to, s: s, left: s.Keep}
}

type outputGuard struct {
	to   io.Writer
	s    *Streams
	left int64
}

func (g *outputGuard) Write(p []byte) (int, error) {
	if g.left -= int64(len(p)); g.left < 0 && !g.s.overflow.Swap(true) {
		_ = g.s.process.Kill()
	}
	return g.to.Write(p)
}
