// What the network namespace of a sandbox's own lets its programs do that the host's does not: nobody outside is in it, so
// none of this needs a privilege. Called by build.c, in the namespaces of the sandbox, as the root of these.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include "child.h"
#include "forkexec.h"

#define SYSCTL "/proc/sys/net/ipv4/"

// set writes a setting and reads it back: numbers, with any space between them.
static int set(const char *path, long first, long second)
{
	char text[48], is[48] = "", *end;
	snprintf(text, sizeof text, second < 0 ? "%ld" : "%ld %ld", first, second);
	if (write_file(path, text) < 0)
		return -1;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, is, sizeof is - 1);
	if (fd >= 0)
		close(fd);
	errno = EIO;
	if (n <= 0 || strtol(is, &end, 10) != first)
		return -1;
	return second < 0 || strtol(end, NULL, 10) == second ? 0 : -1;
}

// The C library passes over 127.0.0.1 and ::1 when it looks whether there is IPv4 or IPv6 at all (AI_ADDRCONFIG), and then
// resolves no name for either, localhost neither. Further addresses of the loopback interface lead no further than these two.
static int more_addresses(void)
{
	struct ifreq v4;
	struct { struct in6_addr addr; uint32_t prefix; int index; } v6;
	struct sockaddr_in *a = (struct sockaddr_in *)&v4.ifr_addr;
	memset(&v4, 0, sizeof v4);
	memset(&v6, 0, sizeof v6);
	strcpy(v4.ifr_name, "lo:0");
	a->sin_family = AF_INET;
	a->sin_addr.s_addr = htonl(0x7f000002);
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int r = fd < 0 ? -1 : ioctl(fd, SIOCSIFADDR, &v4);
	if (fd >= 0)
		close(fd);
	fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return r; // this machine has no IPv6
	v6.prefix = 128;
	v6.index = (int)if_nametoindex("lo");
	if (inet_pton(AF_INET6, FX_LOOPBACK6, &v6.addr) == 1)
		(void)ioctl(fd, SIOCSIFADDR, &v6); // nor may it have ::1
	close(fd);
	return r;
}

unsigned fx_network(int low_ports, int ping_group)
{
	unsigned missing = 0;
	if (low_ports && set(SYSCTL "ip_unprivileged_port_start", 0, -1) < 0)
		missing |= FX_NO_LOW_PORTS;
	if (set(SYSCTL "ping_group_range", ping_group, ping_group) < 0)
		missing |= FX_NO_PING;
	if (more_addresses() < 0)
		missing |= FX_NO_ADDRESSES;
	return missing;
}
