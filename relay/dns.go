package relay

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/sandboxrun/sandboxrun/relay/pace"
	"github.com/sandboxrun/sandboxrun/relay/pipe"
)

const (
	dnsTTL     = 5                // seconds: the addresses never change, but what is allowed may
	dnsPort    = 53               // where an event says that a name was asked for
	dnsIdle    = 10 * time.Second // for the next query on a connection (RFC 7766, section 6.2.3)
	maxQuery   = 4 << 10
	udpSize    = 1232 // what DNS Flag Day 2020 settled on; our answers are far shorter
	asHost     = 443  // a port to ask the judge how it writes a name
	maxRefused = 1024 // refused names that are remembered as reported
	noteBurst  = 20   // refused names that are reported in a burst; after that one a second
)

// dnsUDP answers queries until the socket is closed. It ignores packets that are not queries.
func (s *server) dnsUDP(ctx context.Context, c *net.UDPConn) error {
	buf := make([]byte, maxQuery)
	for {
		s.pace.Wait(ctx)
		n, from, err := c.ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			time.Sleep(time.Millisecond) // an ICMP error of an answer that nobody waited for
			continue
		}
		answer, ok := s.answerDNS(buf[:n])
		if answer != nil {
			_, _ = c.WriteToUDPAddrPort(answer, from) // a client that did not get it asks again
		}
		if !ok {
			s.queries.Wait(ctx, pace.SmallRefusal)
		}
	}
}

// dnsTCP answers the queries of one connection.
func (s *server) dnsTCP(ctx context.Context, c *net.TCPConn) {
	defer pipe.Shut(c)
	buf := make([]byte, maxQuery)
	for {
		_ = c.SetDeadline(time.Now().Add(dnsIdle)) // it fails only where the read will too
		if _, err := io.ReadFull(c, buf[:2]); err != nil {
			return
		}
		n := int(binary.BigEndian.Uint16(buf))
		if n > maxQuery {
			return
		}
		if _, err := io.ReadFull(c, buf[:n]); err != nil {
			return
		}
		s.pace.Wait(ctx)
		answer, ok := s.answerDNS(buf[:n])
		if answer == nil {
			return
		}
		if !ok {
			s.queries.Wait(ctx, pace.SmallRefusal)
		}
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)); err != nil {
			return
		}
	}
}

// answerDNS answers a query from the policy alone. The relay sends no query, because names can carry data out (CVE-2025-55284, by ping and
// nslookup), and because addresses from outside are unreachable inside. It returns false for an answer without an address.
func (s *server) answerDNS(query []byte) ([]byte, bool) {
	var p dnsmessage.Parser
	asked, err := p.Start(query)
	if err != nil || asked.Response {
		return nil, false
	}
	reply := dnsmessage.Header{
		ID: asked.ID, Response: true, OpCode: asked.OpCode,
		RecursionDesired: asked.RecursionDesired, RecursionAvailable: true,
	}
	questions, err := p.AllQuestions()
	switch {
	case asked.OpCode != 0:
		reply.RCode = dnsmessage.RCodeNotImplemented
		return build(reply, nil, netip.Addr{}, false), false
	case err != nil || len(questions) != 1:
		reply.RCode = dnsmessage.RCodeFormatError
		return build(reply, nil, netip.Addr{}, false), false
	}
	q := questions[0]
	addr, code := s.lookUp(q)
	reply.RCode = code
	return build(reply, &q, addr, speaksEDNS(&p)), code == dnsmessage.RCodeSuccess
}

// lookUp finds the address of an allowed name; the zero Addr where there is none of the type that was asked for.
func (s *server) lookUp(q dnsmessage.Question) (netip.Addr, dnsmessage.RCode) {
	name := strings.TrimSuffix(q.Name.String(), ".")
	d := s.judge.Name(name, asHost)
	if q.Class != dnsmessage.ClassINET || isAddress(d.Host) || !s.judge.Known(name) {
		ev := Event{Time: time.Now(), Kind: "dns", Host: d.Host, Port: dnsPort}
		if !d.Allow {
			ev.Explain = d.Explain()
		}
		s.refusals.refused(&s.events, ev, d.Reason)
		return netip.Addr{}, dnsmessage.RCodeNameError
	}
	if q.Type != dnsmessage.TypeA {
		return netip.Addr{}, dnsmessage.RCodeSuccess
	}
	addr, ok := s.names.address(d.Host)
	if !ok {
		return addr, dnsmessage.RCodeServerFailure
	}
	return addr, dnsmessage.RCodeSuccess
}

// speaksEDNS reports whether a query has an OPT record, which the answer must have then too (RFC 6891, section 6.1.1).
func speaksEDNS(p *dnsmessage.Parser) bool {
	if p.SkipAllAnswers() != nil || p.SkipAllAuthorities() != nil {
		return false
	}
	for {
		h, err := p.AdditionalHeader()
		if err != nil {
			return false
		}
		if h.Type == dnsmessage.TypeOPT {
			return true
		}
		if p.SkipAdditional() != nil {
			return false
		}
	}
}

// build writes an answer; nil where that cannot be done, which is no answer.
func build(h dnsmessage.Header, q *dnsmessage.Question, addr netip.Addr, edns bool) []byte {
	b := dnsmessage.NewBuilder(nil, h)
	b.EnableCompression()
	var errs []error
	if q != nil {
		errs = append(errs, b.StartQuestions(), b.Question(*q))
	}
	if addr.IsValid() {
		head := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: dnsTTL}
		errs = append(errs, b.StartAnswers(), b.AResource(head, dnsmessage.AResource{A: addr.As4()}))
	}
	if edns {
		var head dnsmessage.ResourceHeader
		errs = append(errs, b.StartAdditionals(), head.SetEDNS0(udpSize, h.RCode, false), b.OPTResource(head, dnsmessage.OPTResource{}))
	}
	msg, err := b.Finish()
	if errors.Join(append(errs, err)...) != nil {
		return nil
	}
	return msg
}
