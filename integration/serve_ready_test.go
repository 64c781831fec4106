package integration

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestServeReady: a policy that is asked for again is kept ready. Each sandbox is used once, is as the policy is now, and belongs to its client.
func TestServeReady(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		work := b.mkdir("work")
		policy := b.policy(object{"files": object{"write": []string{work}, "deny": []string{b.file("work/key", "k")}}})
		s := b.stdio("--ready", "2")
		create := func(id string) (paths int) {
			t.Helper()
			var made struct {
				Isolated bool
				Paths    []struct{ Host string }
			}
			s.does("create", object{"id": id, "policy": policy}, &made)
			same(t, "isolated", true, made.Isolated)
			return len(made.Paths)
		}
		first := create("first")
		same(t, "ready", 0, len(b.ready()))
		same(t, "paths", first, create("second"))
		b.full(2)
		for i := range 3 {
			id := fmt.Sprint("more-", i)
			same(t, "paths", first, create(id))
			same(t, "from those that were ready", true, b.fromPool(id))
			r := s.exec(id, nil, "sh", "-c", "test -e /tmp/used && echo used; touch /tmp/used; cat "+work+"/key")
			same(t, "what others have left", "", r.Stdout)
			same(t, "the key is denied", 1, r.ExitCode)
			b.full(2)
		}
		same(t, "of a sandbox made as always", false, b.fromPool("first"))

		// What is ready is not given when it means something else now.
		b.mustDo(os.WriteFile(policy, []byte(strings.Replace(b.read(policy), `"deny"`, `"missing":"skip","deny"`, 1)), 0o600))
		create("changed")
		same(t, "from those that were ready", false, b.fromPool("changed"))
		b.full(2)

		// A record begins with its sandbox. An id in use is an error, as always.
		s.does("create", object{"id": "recorded", "policy": policy, "record": b.path("rec")}, nil)
		same(t, "from those that were ready", false, b.fromPool("recorded"))
		s.refuses("create", object{"id": "changed", "policy": policy}, "id_in_use", "")
		b.full(2)
		s.end()
		same(t, "sandboxes left", "", strings.Join(b.ids(), " "))
		same(t, "ready ones left", "", strings.Join(b.ready(), " "))

		b.run("serve", "--stdio", "--ready", "65").exits(125).complains("--ready 65")
	})
}

// TestServeReadyIsBounded: a client that asks for many policies has few kept ready.
func TestServeReadyIsBounded(t *testing.T) {
	flavours(t, func(b *box) {
		s := b.stdio("--ready", "1")
		for i := range 6 {
			policy := object{"version": 1, "workspace": object{"source": "tmpfs", "path": fmt.Sprint("/w", i)}}
			for n := range 2 {
				s.does("create", object{"id": fmt.Sprintf("box-%d-%d", i, n), "policy": policy}, nil)
			}
		}
		b.full(4)
		s.end()
		same(b.t, "ready ones left", "", strings.Join(b.ready(), " "))
		same(b.t, "sandboxes left", "", strings.Join(b.ids(), " "))
	})
}
