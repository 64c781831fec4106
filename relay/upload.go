package relay

import (
	"errors"
	"io"
	"os"
	"time"

	"github.com/sandboxrun/sandboxrun/relay/http1"
	"github.com/sandboxrun/sandboxrun/relay/pipe"
)

const continueTimeout = time.Second // for a server that does not know Expect; what net/http and curl wait

// sendBody sends the body of the request. Then it waits for the client to close, so that the request can be cancelled.
func (x *exchange) sendBody() {
	defer close(x.sendEnded)
	if x.expects && !x.awaitContinue() {
		return
	}
	if x.head.Length != 0 {
		if x.sendErr = x.upload(); x.sendErr != nil {
			return
		}
		close(x.uploaded)
	}
	x.watch()
}

// awaitContinue waits until the body may be sent, and sends the client 100 Continue. It is false where the final response came first: then there is
// no knowing whether a body will follow.
func (x *exchange) awaitContinue() bool {
	late := time.NewTimer(continueTimeout)
	defer late.Stop()
	select {
	case <-x.over:
		return false
	case <-x.proceed:
	case <-late.C:
	}
	x.out.Lock()
	defer x.out.Unlock()
	if x.begun {
		return false
	}
	_, err := io.WriteString(x.conn, "HTTP/1.1 100 Continue\r\n\r\n")
	return err == nil
}

// continued takes the server's "100 Continue".
func (x *exchange) continued() {
	select {
	case <-x.proceed:
	default:
		close(x.proceed)
	}
}

// upload sends the body. If the client fails, it resets the connection to the server, which could otherwise take the part for the whole.
func (x *exchange) upload() error {
	b := http1.Body{Length: x.head.Length, R: x.r, Src: x.conn, Dst: x.up.Stream, Chunks: true, Count: &x.sent}
	err := b.Copy(&x.pool)
	if err != nil && !pipe.Dead(x.up.Stream) && !errors.Is(err, os.ErrDeadlineExceeded) {
		pipe.Reset(x.up)
	}
	return err
}

// watch waits for the client to end its connection, or to send more; then the next request's reading takes over. One that
// has only ended its own direction still wants the answer.
func (x *exchange) watch() {
	_, err := x.r.Peek(1)
	switch {
	case err == nil, errors.Is(err, os.ErrDeadlineExceeded):
	case !errors.Is(err, io.EOF), pipe.UntilDead(x.conn):
		x.gone.Store(true)
		pipe.Reset(x.up)
	}
}
