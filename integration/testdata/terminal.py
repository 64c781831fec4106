"""A person at a terminal: an interactive bash on a pseudo-terminal, into which a command is typed that calls the launcher.

usage: terminal.py SCENARIO COMMAND...; prints what was seen, one word or value a line.
"""
import os, pty, select, shlex, signal, struct, sys, termios, time
import fcntl


class Shell:
    def __init__(self):
        self.out = b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 77, 0, 0))
            a = termios.tcgetattr(0)
            a[6][termios.VERASE], a[6][termios.VINTR] = b"\x08", b"\x07"
            a[0] |= 0x4000  # IUTF8
            termios.tcsetattr(0, termios.TCSANOW, a)
            os.execvp("bash", ["bash", "--norc", "--noprofile", "--noediting", "-i"])
        self.until(lambda: b"$" in self.out or b"#" in self.out)
        self.type("PS1='@@@ '\n")
        self.expect("@@@ '"), self.expect("@@@ ")

    def pump(self, seconds=0.05):
        if select.select([self.fd], [], [], seconds)[0]:
            try:
                self.out += os.read(self.fd, 65536)
            except OSError:
                pass

    def until(self, holds, seconds=20):
        end = time.time() + seconds
        while time.time() < end:
            if holds():
                return True
            self.pump()
        return False

    def type(self, text):
        self.pump()
        os.write(self.fd, text.encode())

    def expect(self, text, seconds=20):
        """Whether the text comes, after which what came before it is forgotten."""
        found = self.until(lambda: text.encode() in self.out, seconds)
        if found:
            self.out = self.out[self.out.index(text.encode()) + len(text):]
        return found

    def end(self):
        os.close(self.fd)
        for s in (signal.SIGHUP, signal.SIGKILL):
            try:
                os.kill(self.pid, s)
            except ProcessLookupError:
                pass
            time.sleep(0.1)
        os.waitpid(self.pid, 0)


def say(what, value):
    print(what, value, flush=True)


scenario, command = sys.argv[1], " ".join(shlex.quote(a) for a in sys.argv[2:])
sh = Shell()

# Beats once in a while, in a background process and in a session of its own too.
beat = "setsid sh -c 'while :; do echo b >>beats; sleep 0.05; done' & while :; do echo f >>beats; sleep 0.05; done"


def beats():
    try:
        return os.path.getsize("beats")
    except OSError:
        return 0


if scenario == "suspend":
    sh.type(command + " sh -c " + shlex.quote("echo BEGUN; " + beat) + "\n")
    sh.expect("; done"), say("begun", sh.expect("BEGUN"))
    time.sleep(0.3)
    sh.type("\x1a")
    say("stopped", sh.expect("Stopped"))
    sh.type("stty -a | grep -o -e '-icanon'; echo TERM\\INAL\n")  # the shell must not find it in raw mode
    sh.expect("TERMINAL")
    a = beats()
    time.sleep(0.5)
    say("quiet", a == beats())
    sh.type("fg\n")
    say("beats again", sh.until(lambda: beats() > a + 8))
    sh.out = b""  # with older prompts in it
    sh.type("\x07")  # VINTR, as set above
    sh.expect("@@@ ")
    sh.type("echo status=$?.\n")
    say("interrupted", sh.expect("status=130."))
elif scenario == "wall":
    sh.type(command + " sh -c 'echo BEGUN; while :; do echo f >>beats; sleep 0.05; done'\n")
    sh.expect("done'"), sh.expect("BEGUN")
    sh.type("\x1a")
    sh.expect("Stopped")
    time.sleep(1.6)
    sh.type("fg; echo status=$?.\n")
    say("timed out", sh.expect("status=124."))
elif scenario == "background":
    sh.type("(" + command + " sh -c 'echo begun; sleep 0.7; echo ended' >log 2>&1; echo rc=$? >>log) &\n")
    say("ended", sh.until(lambda: os.path.exists("log") and "rc=0" in open("log").read()))
    sh.type("jobs\n")
    sh.pump(0.5)
    say("stopped", b"Stopped" in sh.out)
    sh.type("echo my\\own; echo li\\nes\n")  # the shell reads what is typed
    say("typed", sh.expect("myown") and sh.expect("lines"))
elif scenario == "both":  # in the background with a terminal on both sides
    sh.type(command + " sh -c 'sleep 0.3; echo from-back\"\"ground; read x; echo got:$x' &\n")
    say("writes", sh.expect("from-background"))
    sh.type("jobs\n")
    sh.pump(0.5)
    say("stopped", b"Stopped" in sh.out)
    sh.type("fg\n")
    time.sleep(1)
    sh.type("hello\n")
    say("reads", sh.expect("got:hello"))
elif scenario == "settings":
    sh.type(command + " stty -a\n")
    sh.expect("stty -a")
    sh.until(lambda: b"@@@" in sh.out)
    text = sh.out.decode()
    for want in ("rows 33", "columns 77", "erase = ^H", "intr = ^G", " iutf8", " icanon", " echo "):
        say(want.strip(), want in text.replace("\r\n", " "))
elif scenario == "shell":  # a shell inside has jobs of its own
    sh.type(command + " bash --norc --noprofile --noediting -i\n")
    sh.expect("-i")
    sh.type("PS1='%%% '\n")
    sh.expect("%%% ' ")
    sh.until(lambda: b"%%%" in sh.out)
    sh.type("sleep 100\n")
    time.sleep(0.5)
    sh.type("\x1a")
    say("stopped", sh.expect("Stopped"))
    sh.type("jobs; echo in\\side $$\n")
    say("inside", sh.expect("inside 2"))
    sh.type("\x1a")
    sh.out = b""
    sh.type("kill -9 %1\n")  # a shell with a stopped job would not exit
    time.sleep(0.3)
    sh.type("true\n")
    sh.expect("Killed", 5)
    sh.type("exit 7\n")
    if not sh.expect("@@@ ", 5):  # it has not heard yet that the job is gone, and says so once
        sh.type("exit 7\n")
        sh.expect("@@@ ")
    sh.type("echo status=$?.\n")
    say("exits", sh.expect("status=7.", 5))
sh.end()
