package policy

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/sandboxrun/sandboxrun/netpolicy"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/spec/document"
)

// This file has the keys that need code of their own, in the order of the table, and the checks of list items.

const (
	maxUser         = math.MaxUint32 - 1 // the highest user number is reserved for "none"
	modulePattern   = `^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$`
	variablePattern = `^[A-Za-z_*][A-Za-z0-9_*]*$`
	namePattern     = `^[A-Za-z_][A-Za-z0-9_]*$`
	servicePattern  = `^[hH][tT][tT][pP][sS]?://.`
	portPattern     = `^[0-9]{1,5}(=.+)?$`
)

// versionKey sets nothing: the loader checks the version before it reads the other keys.
func versionKey() key[Policy] {
	return key[Policy]{
		info: info{
			name: "version", kind: "1", doc: "The version of this format.",
			schema: func() map[string]any { return map[string]any{"type": "integer", "const": 1} },
		},
		set: func(*scope, string, *Policy, *document.Node) {},
		get: func(*Policy) any { return 1 },
	}
}

// extendsKey sets nothing: the loader reads the extended policy before the other keys, so that they override it.
func extendsKey() key[Policy] {
	return key[Policy]{
		info: info{
			name: "extends", kind: "preset or path", schema: pathSchema,
			doc: "The preset or policy file that this policy extends. A name with a \"/\", or one that ends in .toml or .json, is a file. Lists append to " +
				"its lists, env.set and views merge by name, and every other key overrides.",
		},
		set: func(*scope, string, *Policy, *document.Node) {},
		get: func(*Policy) any { return nil },
	}
}

func nameKey() key[Policy] {
	return key[Policy]{
		info: info{
			name: "name", kind: "string", doc: "The name of the policy in records.",
			schema: pathSchema,
		},
		set: func(s *scope, name string, p *Policy, v *document.Node) {
			if text, ok := s.text(v, name); ok {
				p.Name = text
			}
		},
		get: func(p *Policy) any { return unlessZero(p.Name) },
	}
}

func workdirKey() key[Policy] {
	k := pathKey("workdir", "The program's working directory: a path inside.", false,
		func(p *Policy) *string { return &p.Files.Workdir.Path })
	setPath := k.set
	k.set = func(s *scope, name string, p *Policy, v *document.Node) {
		setPath(s, name, p, v)
		p.Files.Workdir.From = s.from(v.At, name)
	}
	return k
}

func userKey() key[Policy] {
	const want = `"caller", "root" or a number`
	return key[Policy]{
		info: info{
			name: "user", kind: want, doc: "Which user the program is. caller: the caller. If the caller is the machine's root, the program sees itself as user sandbox (1000), " +
				"and to the host it is a user id that owns no file. root: the same, but the program sees itself as root; a chown to another user " +
				"succeeds and changes nothing. A number: the program is that user, to the host too; only root may ask for this.",
			schema: func() map[string]any {
				return anyOf(
					map[string]any{"enum": []string{"caller", "root"}},
					map[string]any{"type": "integer", "minimum": 0, "maximum": int64(maxUser)},
				)
			},
		},
		set: func(s *scope, name string, p *Policy, v *document.Node) {
			u := User{From: s.from(v.At, name)}
			switch {
			case v.Kind == document.StringNode && (v.Text == "caller" || v.Text == "root"):
				u.Kind = v.Text
			case v.Kind == document.StringNode:
				s.wrong(v.At, name, "want %s, got %q", want, v.Text)
				return
			case v.Kind != document.IntegerNode:
				s.wrongKind(v, name, want)
				return
			case v.Integer < 0 || v.Integer > maxUser:
				s.wrong(v.At, name, "want 0 to %d, got %d", int64(maxUser), v.Integer)
				return
			default:
				u.Kind, u.ID = "number", int(v.Integer)
			}
			p.User = u
		},
		get: func(p *Policy) any {
			if p.User.Kind == "number" {
				return p.User.ID
			}
			return p.User.Kind
		},
	}
}

func workspaceSourceKey() key[rootfs.Workspace] {
	return key[rootfs.Workspace]{
		info: info{
			name: "source", kind: `path or "tmpfs"`, schema: pathSchema,
			doc: "A directory of the host, or \"tmpfs\" for an empty directory in memory (\"./tmpfs\" is a directory of that name). " +
				"Required, here or in the extended policy.",
		},
		set: func(s *scope, name string, w *rootfs.Workspace, v *document.Node) {
			w.From = s.from(v.At, name)
			if v.Kind == document.StringNode && v.Text == rootfs.SourceTmpfs {
				w.Source = rootfs.SourceTmpfs
			} else if p, ok := s.path(v, name, s.hostPath); ok {
				w.Source = p
			}
		},
		get: func(w *rootfs.Workspace) any { return unlessZero(w.Source) },
	}
}

func baseKey() key[Policy] {
	words := []string{rootfs.BaseSystem, rootfs.BaseHost, rootfs.BaseNone}
	type base = rootfs.Base
	keys := []key[base]{
		pathKey("rootfs", "The directory that has the root file system.", false,
			func(b *base) *string { return &b.Dir }).must(),
	}
	return key[Policy]{
		info: info{
			name: "base", kind: `"system", "host", "none" or { rootfs = path }`, inner: inner(keys),
			doc: "What the program sees without any grant, read-only. system: /usr, /lib*, /bin, and what installed programs keep in /etc and /var for every user to read. host: the host's whole root, " +
				"without homes, run directories, mounts and the top directories of users. none: nothing. " +
				"{ rootfs = path }: a directory that has a root file system.",
			schema: func() map[string]any { return map[string]any{"enum": words} },
		},
		set: func(s *scope, name string, p *Policy, v *document.Node) {
			b := base{From: s.from(v.At, name)}
			switch {
			case v.Kind == document.TableNode:
				b.Kind = rootfs.BaseRootfs
				readTable(s, name, keys, &b, v)
			case v.Kind != document.StringNode:
				s.wrongKind(v, name, `"system", "host", "none" or { rootfs = "DIR" }`)
				return
			case !slices.Contains(words, v.Text):
				s.wrong(v.At, name, `want "system", "host", "none" or { rootfs = "DIR" }, got %q`, v.Text)
				return
			default:
				b.Kind = v.Text
			}
			p.Files.Base = b
		},
		get: func(p *Policy) any {
			if p.Files.Base.Kind == rootfs.BaseRootfs {
				return encode(keys, &p.Files.Base)
			}
			return p.Files.Base.Kind
		},
	}
}

func interpretersKey() key[Policy] {
	k := textsKey("interpreters", "list of names or paths", "Interpreters of Python, Node.js and Java that the program sees as they are installed: "+
		"prefix, standard library and own site directories, read-only. Each is a name, which is looked up in the caller's PATH, a program, or the directory of "+
		"an installation or environment, with a \"/\" (\"./venv\"). Their directories lead PATH. Every other Python's site directories are empty, and "+
		"what .pth files add is not shown. No interpreter is run to find them.",
		pathSchema, verbatim, func(p *Policy) *[]string { return &p.Interpreters.Show })
	k.set = func(s *scope, name string, p *Policy, v *document.Node) {
		for _, item := range s.list(v, name, "a list of names or paths") {
			text, ok := s.interpreter(item, name)
			if ok && !slices.Contains(p.Interpreters.Show, text) {
				p.Interpreters.Show = append(p.Interpreters.Show, text)
				p.note(name, text, s.place(item.At))
			}
		}
	}
	return k
}

// interpreter reads a name, or a path on the host.
func (s *scope) interpreter(v *document.Node, key string) (string, bool) {
	text, ok := s.text(v, key)
	if ok && (strings.Contains(text, "/") || strings.Trim(text, ".") == "" || strings.Trim(text[:1], "~$") == "") {
		return s.path(v, key, s.hostPath)
	}
	return text, ok
}

func envSetKey() key[Policy] {
	return key[Policy]{
		info: info{
			name: "set", kind: "table of strings", doc: "Variables and their values. The values are literal: nothing expands.",
			schema: func() map[string]any {
				return map[string]any{
					"type": "object", "additionalProperties": map[string]any{"type": "string"},
					"propertyNames": map[string]any{"pattern": namePattern},
				}
			},
		},
		set: func(s *scope, name string, p *Policy, v *document.Node) {
			if v.Kind != document.TableNode {
				s.wrongKind(v, name, "a table of strings")
				return
			}
			for _, f := range v.Fields {
				s.setVariable(p, under(name, f.Name), f)
			}
		},
		get: func(p *Policy) any {
			if len(p.Env.Set) == 0 {
				return nil
			}
			return maps.Clone(p.Env.Set)
		},
	}
}

func (s *scope) setVariable(p *Policy, key string, f document.Field) {
	switch err := checkName(f.Name); {
	case err != nil:
		s.wrong(f.At, key, "check name %q: %v", f.Name, err)
	case f.Value.Kind != document.StringNode:
		s.wrongKind(f.Value, key, "a string in quotes")
	case strings.Contains(f.Value.Text, "\x00"):
		s.wrong(f.Value.At, key, "has a NUL character")
	default:
		if p.Env.Set == nil {
			p.Env.Set = map[string]string{}
		}
		p.Env.Set[f.Name] = f.Value.Text
		p.note("env.set", f.Name, s.place(f.At))
	}
}

func modeKey() key[Policy] {
	k := wordKey("mode", "isolated: loopback only. allowlist: the hosts of allowed_hosts and services, through the relay. public: every public host, "+
		"through the relay. host: the host's own network, without protection.", netpolicy.Modes(),
		func(p *Policy) *string { return &p.Network.Mode })
	setMode := k.set
	k.set = func(s *scope, name string, p *Policy, v *document.Node) {
		setMode(s, name, p, v)
		p.Network.From = s.from(v.At, name)
	}
	return k
}

func upstreamKey() key[Policy] {
	const kind = "URL or \"environment\""
	return key[Policy]{
		info: info{
			name: "upstream_proxy", kind: kind, doc: "The proxy of the caller's network that the relay reaches allowed hosts through: " +
				"http://HOST:PORT or socks5://HOST:PORT, or \"environment\": what the caller's HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY say. User and " +
				"password come from these variables, never from the policy. Hosts of no_proxy and allow_private, local names and addresses that are not public are reached " +
				"directly. The addresses of names are the proxy's to judge: see security.md.",
			schema: pathSchema,
		},
		set: func(s *scope, name string, p *Policy, v *document.Node) {
			text, ok := s.text(v, name)
			if !ok {
				return
			}
			if text != netpolicy.FromEnvironment {
				proxy, err := netpolicy.ParseProxy(text)
				if err == nil && proxy.Secret() != "" {
					err = errors.New("a URL in a policy must hold no user name or password: they are taken from HTTPS_PROXY of the caller")
				}
				if err != nil {
					s.wrong(v.At, name, "%v", err)
					return
				}
				text = proxy.String()
			}
			p.Network.UpstreamProxy = text
			p.note(name, text, s.place(v.At))
		},
		get: func(p *Policy) any { return unlessZero(p.Network.UpstreamProxy) },
	}
}

func portsKey() key[Policy] {
	return key[Policy]{
		info: info{
			name: "ports", kind: "list of ports", schema: func() map[string]any {
				return listSchema(anyOf(
					map[string]any{"type": "integer", "minimum": 1, "maximum": math.MaxUint16},
					map[string]any{"type": "string", "pattern": portPattern},
				))
			},
			doc: "Loopback ports inside that the relay forwards. PORT: the same port of the host's loopback. \"PORT=OUT\": OUT is a port of the host's " +
				"loopback, HOST:PORT or unix:/absolute/path.",
		},
		set: func(s *scope, name string, p *Policy, v *document.Node) {
			for _, item := range s.list(v, name, "a list of ports") {
				s.addPort(&p.Network, item, name)
			}
		},
		get: func(p *Policy) any {
			return listOf(p.Network.Ports, func(port netpolicy.Port) any { return port.String() })
		},
	}
}

func (s *scope) addPort(n *netpolicy.Policy, v *document.Node, key string) {
	text := v.Text
	switch v.Kind {
	case document.IntegerNode:
		text = strconv.FormatInt(v.Integer, 10)
	case document.StringNode:
	default:
		s.wrongKind(v, key, `a port such as 8000 or "9000=127.0.0.1:9001"`)
		return
	}
	port, err := netpolicy.ParsePort(text)
	if err != nil {
		s.wrong(v.At, key, "%v", err)
		return
	}
	for _, other := range n.Ports {
		if other.Inside == port.Inside {
			s.wrong(v.At, key, "port %d is forwarded already, by %s", port.Inside, other.From)
			return
		}
	}
	port.From = s.from(v.At, key)
	n.Ports = append(n.Ports, port)
}

func verbatim(s string) (string, error) { return s, nil }

func checkService(s string) (string, error) {
	_, err := netpolicy.ParseService(s)
	return s, err
}

func checkHost(parse func(string) (netpolicy.Pattern, error)) func(string) (string, error) {
	return func(s string) (string, error) {
		p, err := parse(s)
		return p.String(), err
	}
}

func checkModule(s string) (string, error) {
	for part := range strings.SplitSeq(s, ".") {
		if checkName(part) != nil {
			return "", fmt.Errorf("check module %q: want a name such as \"torch\" or \"torch.cuda\"", s)
		}
	}
	return s, nil
}

func checkVariablePattern(s string) (string, error) {
	if checkName(strings.ReplaceAll(s, "*", "_")) != nil {
		return "", fmt.Errorf("check pattern %q: %w", s,
			errors.New("want a name of letters, digits, \"_\" and \"*\" that does not begin with a digit"))
	}
	return s, nil
}
