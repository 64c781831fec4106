package seccomp

import (
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// socketRules allow the sockets that work in an empty network namespace without a capability: of Unix, of TCP and UDP, those
// of ping, and of the netlink family that lists addresses and routes. Every other socket reaches rarely used code, whose
// module the kernel loads for everybody: SCTP (CVE-2021-23133), DCCP (CVE-2017-6074), L2TP (CVE-2020-27067), SMC,
// UDP-Lite; RDS (CVE-2010-3904), TIPC (CVE-2021-43267), and netlink's netfilter (CVE-2024-1086), crypto (CVE-2019-19062)
// and socket diagnosis (CVE-2013-1763). Some families ignore network namespaces (AF_VSOCK, AF_QIPCRTR).
//
// The errnos are those of a kernel that is built without them, so that programs fall back: Go from MPTCP to TCP, ss
// from netlink to /proc/net, ping from a raw socket.
func socketRules() []specs.LinuxSyscall {
	const typeBits, protocolBits, streams, datagrams, raw = 4, 6, unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_RAW
	names := []string{"socket"}
	families, others := sortBits(0, 32, unix.AF_UNIX, unix.AF_NETLINK, unix.AF_INET, unix.AF_INET6)
	types, otherTypes := sortBits(1, typeBits, streams, datagrams, raw)                                        // above them are SOCK_CLOEXEC and SOCK_NONBLOCK
	rules := sortLow32([]string{"socketpair"}, 0, []uint32{unix.AF_UNIX}, allowIt(), errno(unix.EAFNOSUPPORT)) // others have no pairs
	rules = append(rules, allowIt().rule(names, families[0]))
	for _, f := range others {
		rules = append(rules, errno(unix.EAFNOSUPPORT).rule(names, f))
	}
	protocols := func(before []specs.LinuxSeccompArg, allowed ...uint32) {
		each, rest, above := sortSmall(2, protocolBits, allowed...)
		for _, p := range each {
			rules = append(rules, allowIt().rule(names, append(slices.Clone(before), p)...))
		}
		for _, p := range append(rest, above) {
			rules = append(rules, errno(unix.EPROTONOSUPPORT).rule(names, append(slices.Clone(before), p)...))
		}
	}
	protocols(families[1:2], unix.NETLINK_ROUTE)
	for _, f := range families[2:] {
		protocols([]specs.LinuxSeccompArg{f, types[0]}, 0, unix.IPPROTO_TCP)
		protocols([]specs.LinuxSeccompArg{f, types[1]}, 0, unix.IPPROTO_UDP, unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6)
		rules = append(rules, errno(unix.EPERM).rule(names, f, types[2]))
		for _, t := range otherTypes {
			rules = append(rules, errno(unix.ESOCKTNOSUPPORT).rule(names, f, t))
		}
	}
	return rules
}

// sockoptRules refuse to put another protocol onto TCP (TCP_ULP: kernel TLS, CVE-2023-0461, CVE-2024-26582; SMC; ESP).
// OpenSSL does without. Filters of sockets stay: they are of the kind that seccomp takes, and go through the same code.
// tables: they also refuse the options that set the tables of a packet filter, as root of a network namespace may.
func sockoptRules(tables bool) []specs.LinuxSyscall {
	names := []string{"setsockopt"}
	const levelBits, optionBits = 10, 6 // SOL_VSOCK is 287, the last option of TCP 45
	none := errno(unix.ENOPROTOOPT)
	values := []uint32{unix.IPPROTO_TCP}
	if tables {
		values = append(values, unix.SOL_IP, unix.SOL_IPV6)
	}
	levels, others, noLevel := sortSmall(1, levelBits, values...)
	option, rest, noOption := sortSmall(2, optionBits, unix.TCP_ULP)
	rules := []specs.LinuxSyscall{none.rule(names, noLevel), none.rule(names, levels[0], noOption), none.rule(names, levels[0], option[0])}
	for _, o := range rest {
		rules = append(rules, allowIt().rule(names, levels[0], o))
	}
	for _, l := range others {
		rules = append(rules, allowIt().rule(names, l))
	}
	if !tables {
		return rules
	}
	const tableOption, ipv6Bits = 64, 7 // IPT_BASE_CTL; those of arptables and ebtables are higher. IPv6 has options of its own up to 78
	rules = append(rules, allowIt().rule(names, levels[1], masked(2, ^uint64(tableOption-1), 0)), none.rule(names, levels[1], more(2, tableOption-1)))
	six, rest, above := sortSmall(2, ipv6Bits, tableOption, tableOption+1)
	for _, o := range append(six, above) {
		rules = append(rules, none.rule(names, levels[2], o))
	}
	for _, o := range rest {
		rules = append(rules, allowIt().rule(names, levels[2], o))
	}
	return rules
}
