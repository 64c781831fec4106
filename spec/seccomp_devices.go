package spec

import "golang.org/x/sys/unix"

// Requests of ioctl that package unix does not have. The numbers are the same on amd64 and arm64.
const (
	tioclinux   = 0x541C
	tiocsetd    = 0x5423
	siocsifbr   = 0x8941
	siocgifbr   = 0x8940
	siocbraddbr = 0x89a0
	siocbrdelbr = 0x89a1
	siocgifvlan = 0x8982
	siocsifvlan = 0x8983
)

// refusedRequests are those of ioctl that a program may not make, whatever the high half of the number is. What acts on a file
// system needs a mount that can be written, or a capability, and is refused by the kernel where it has to be, except for:
func refusedRequests() []uint32 {
	return []uint32{
		// Type into the terminal's own input: what they put there, the caller's shell reads when the sandbox has ended.
		unix.TIOCSTI, // CVE-2017-5226 (bubblewrap), CVE-2019-10063 (flatpak), bubblewrap#142
		tioclinux,    // CVE-2023-28100 (flatpak): a virtual console's paste

		// Gives a terminal another line discipline, whose module the kernel loads for anybody: CVE-2017-2636 (n_hdlc),
		// CVE-2023-6546 (n_gsm).
		tiocsetd,

		// Load the modules of bridges and VLANs before they ask for a capability.
		siocgifbr, siocsifbr, siocbraddbr, siocbrdelbr, siocgifvlan, siocsifvlan,
	}
}
