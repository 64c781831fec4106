package seccomp

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

// refusedRequests are the requests of ioctl that the filter refuses, with any high half of the number. Requests that act on a file
// system need a writable mount or a capability, so the kernel refuses them. The exceptions are:
func refusedRequests() []uint32 {
	return []uint32{
		// They type into the terminal's input, which the caller's shell reads when the sandbox has ended.
		unix.TIOCSTI, // CVE-2017-5226 (bubblewrap), CVE-2019-10063 (flatpak), bubblewrap#142
		tioclinux,    // CVE-2023-28100 (flatpak): a virtual console's paste

		// Gives a terminal another line discipline, whose module the kernel loads for everybody: CVE-2017-2636 (n_hdlc),
		// CVE-2023-6546 (n_gsm).
		tiocsetd,

		// Load the modules of bridges and VLANs before they ask for a capability.
		siocgifbr, siocsifbr, siocbraddbr, siocbrdelbr, siocgifvlan, siocsifvlan,
	}
}
