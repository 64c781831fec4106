# Sourced by the other scripts: what Go needs where there is no login, as in a CI job or a container's build.
# shellcheck shell=sh

command -v go >/dev/null 2>&1 || PATH=$PATH:/usr/local/go/bin
PATH=$PATH:/usr/sbin:/sbin
export PATH

# The tree may belong to somebody else, and then git tells Go nothing: scripts/build finds the version itself.
export GOFLAGS="${GOFLAGS:+$GOFLAGS }-buildvcs=false"

# Without a home of its own Go does not know where to keep what it builds.
if [ -z "${HOME:-}" ] || [ ! -d "$HOME" ] || [ ! -w "$HOME" ]; then
	home=${TMPDIR:-/tmp}/sandboxrun-home-$(id -u)
	# The directory above may be everybody's: whatever is there already must be ours alone.
	mkdir -m 700 "$home" 2>/dev/null || true
	if [ -L "$home" ] || [ "$(stat -c '%F %u %a' "$home" 2>/dev/null)" != "directory $(id -u) 700" ]; then
		home=$(mktemp -d)
	fi
	export HOME="$home"
	unset home
fi
