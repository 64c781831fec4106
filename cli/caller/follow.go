package caller

import (
	"context"
	"errors"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// Following is a context that ends at Ctrl-C, or when the reader of standard output has gone, which a write may notice much later.
func (c *Caller) Following() (context.Context, context.CancelFunc) {
	interrupted := make(chan os.Signal, 1)
	if !signal.Ignored(unix.SIGINT) { // a script in the background ignores it
		signal.Notify(interrupted, unix.SIGINT)
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		<-interrupted
		stop()
	}()
	go func() {
		fds := []unix.PollFd{{Fd: int32(c.Out.File.Fd())}} // POLLERR is always reported
		for {
			_, err := unix.Poll(fds, -1)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			stop()
			return
		}
	}()
	return ctx, stop
}

// UnlessClosed drops the error that the reader of standard output has gone.
func UnlessClosed(err error) error {
	if errors.Is(err, unix.EPIPE) {
		return nil
	}
	return err
}
