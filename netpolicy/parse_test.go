package netpolicy

import (
	"strings"
	"testing"
)

func TestParseHost(t *testing.T) {
	long := strings.Repeat("a", 63)
	for in, want := range map[string]Pattern{
		"api.example.com":         {Name: "api.example.com"},
		"API.Example.COM.":        {Name: "api.example.com"},
		"api.example.com:8443":    {Name: "api.example.com", Port: 8443},
		"api.example.com.:1":      {Name: "api.example.com", Port: 1},
		"localhost:65535":         {Name: "localhost", Port: 65535},
		"*.example.org":           {Name: "example.org", Wildcard: true},
		"*.example.org:8443":      {Name: "example.org", Wildcard: true, Port: 8443},
		"*.test":                  {Name: "test", Wildcard: true},
		"xn--bcher-kva.example":   {Name: "xn--bcher-kva.example"},
		"BÜCHER.example.":         {Name: "xn--bcher-kva.example"},
		"*.bücher.example:1":      {Name: "xn--bcher-kva.example", Wildcard: true, Port: 1},
		"_srv.x-y.example":        {Name: "_srv.x-y.example"},
		"1.example":               {Name: "1.example"},
		"127.0.0.1":               {Name: "127.0.0.1"},
		"127.0.0.1:80":            {Name: "127.0.0.1", Port: 80},
		"::1":                     {Name: "::1"},
		"[::1]":                   {Name: "::1"},
		"[2001:DB8:0::1]:443":     {Name: "2001:db8::1", Port: 443},
		"[::ffff:10.0.0.1]:443":   {Name: "10.0.0.1", Port: 443},
		long + "." + long + ".de": {Name: long + "." + long + ".de"},
	} {
		got, err := ParseHost(in)
		if err != nil || got != want {
			t.Errorf("ParseHost(%q) = %+v, %v; want %+v", in, got, err, want)
			continue
		}
		if again, err := ParseHost(got.String()); err != nil || again != got {
			t.Errorf("ParseHost(%q), which is how %+v is written = %+v, %v", got.String(), got, again, err)
		}
	}
}

func TestParseHostRefuses(t *testing.T) {
	for in, want := range map[string]string{
		"":                         "it is empty",
		" ":                        "the character ' '",
		"a b.example":              "the character ' '",
		"a.example ":               "the character ' '",
		"https://a.example":        "not a URL",
		"a.example/path":           "the character '/'",
		"user@a.example":           "the character '@'",
		"a..example":               "empty label",
		".a.example":               "empty label",
		"a.example..":              "empty label",
		".":                        "names no host",
		":80":                      "names no host",
		"*":                        `"*" may only be`,
		"*.":                       `"*" may only be`,
		"*.*.example":              `"*" may only be`,
		"a.*.example":              `"*" may only be`,
		"*a.example":               `"*" may only be`,
		"-a.example":               `begins or ends with "-"`,
		"a-.example":               `begins or ends with "-"`,
		"b≠c.example":              "no international name",
		"xn--a.example":            "no international name",
		"１２７.0.0.1":                "neither a name nor an IPv4 address",
		"127.0.0.1..":              "empty label",
		"a.example:":               `want ":PORT"`,
		"a.example:0":              "not a number from 1 to 65535",
		"a.example:65536":          "not a number from 1 to 65535",
		"a.example:+80":            "not a number from 1 to 65535",
		"a.example:http":           "not a number from 1 to 65535",
		"a.example:80:80":          "no IPv6 address",
		"[::1":                     `"[" without "]"`,
		"[::1]80":                  `want ":PORT"`,
		"[::1]:":                   `want ":PORT"`,
		"[127.0.0.1]:80":           "no IPv6 address",
		"[a.example]:80":           "no IPv6 address",
		"fe80::1%eth0":             "no IPv6 address",
		"[fe80::1%eth0]:80":        "no IPv6 address",
		"127.1":                    "neither a name nor an IPv4 address",
		"2130706433":               "neither a name nor an IPv4 address",
		"0x7f000001":               "neither a name nor an IPv4 address",
		"0177.0.0.1":               "neither a name nor an IPv4 address",
		"a.0x":                     "neither a name nor an IPv4 address",
		"*.10.0.0.1":               "neither a name nor an IPv4 address",
		"a\x00.example":            `the character '\x00'`,
		strings.Repeat("a", 64):    "longer than 63",
		strings.Repeat("a.", 130):  "longer than 253",
		"a.example\nb.example":     `the character '\n'`,
		"a.example,b.example":      "the character ','",
		"%61.example":              "the character '%'",
		"a.example:80\x00":         "not a number from 1 to 65535",
		"a.example: 80":            "not a number from 1 to 65535",
		"[::1]:99999":              "not a number from 1 to 65535",
		"[]":                       "no IPv6 address",
		"1.2.3.4.5":                "neither a name nor an IPv4 address",
		"256.1.1.1":                "neither a name nor an IPv4 address",
		"http://[::1]:80/":         "not a URL",
		"file:///etc/passwd":       "not a URL",
		"a.example:8443/path?q=80": "not a number from 1 to 65535",
	} {
		_, err := ParseHost(in)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseHost(%q) error = %v; want %q", in, err, want)
		}
	}
}

func TestParsePrivateHost(t *testing.T) {
	for _, ok := range []string{"db.internal", "*.internal", "::1", "[::1]", "10.0.0.1"} {
		if _, err := ParsePrivateHost(ok); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{"db.internal:5432", "[::1]:80", "", "a b"} {
		if _, err := ParsePrivateHost(bad); err == nil {
			t.Errorf("ParsePrivateHost(%q) is accepted", bad)
		}
	}
}

func TestParsePort(t *testing.T) {
	for in, want := range map[string]Port{
		"8000":                       {Inside: 8000, Outside: "127.0.0.1:8000"},
		"1=65535":                    {Inside: 1, Outside: "127.0.0.1:65535"},
		"5432=unix:/run/pg.sock":     {Inside: 5432, Outside: "unix:/run/pg.sock"},
		"5432=unix:/run//a/../p=q:r": {Inside: 5432, Outside: "unix:/run/p=q:r"},
		"9000=127.0.0.1:9001":        {Inside: 9000, Outside: "127.0.0.1:9001"},
		"9000=[::1]:9001":            {Inside: 9000, Outside: "[::1]:9001"},
		"9000=DB.internal.:5432":     {Inside: 9000, Outside: "db.internal:5432"},
	} {
		got, err := ParsePort(in)
		if err != nil || got != want {
			t.Errorf("ParsePort(%q) = %+v, %v; want %+v", in, got, err, want)
		}
		if again, err := ParsePort(got.String()); err != nil || again != got {
			t.Errorf("ParsePort(%q) = %+v, %v; want %+v", got.String(), again, err, got)
		}
	}
}

func TestParsePortRefuses(t *testing.T) {
	for in, want := range map[string]string{
		"":                   "not a number",
		"0":                  "not a number",
		"65536":              "not a number",
		"-1":                 "not a number",
		"8_0":                "not a number",
		"80=":                "not a number",
		"=80":                "not a number",
		"80=0":               "not a number",
		"80=a.example":       "not a number",
		"80=unix:run/x":      "not an absolute path",
		"80=unix:":           "not an absolute path",
		"80=unix:/a\x00b":    "not an absolute path",
		"80=*.example:80":    `"*" is no host`,
		"80=::1":             "has no port",
		"80=http://h:80":     "not a URL",
		"80=a b:80":          "the character ' '",
		"80=:80":             "names no host",
		"80:90":              "not a number",
		"8000=127.0.0.1:":    `want ":PORT"`,
		"8000=127.0.0.1:0":   "not a number",
		"8000 =127.0.0.1:80": "not a number",
	} {
		_, err := ParsePort(in)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParsePort(%q) error = %v; want %q", in, err, want)
		}
	}
}

func TestParseService(t *testing.T) {
	for in, want := range map[string]Service{
		"http://127.0.0.1:8000/v1":     {Host: "127.0.0.1", Port: 8000},
		"https://api.example.com":      {Host: "api.example.com", Port: 443},
		"HTTP://API.example.com./x?y":  {Host: "api.example.com", Port: 80},
		"http://[::1]:9/":              {Host: "::1", Port: 9},
		"https://api.example.com:/v1":  {Host: "api.example.com", Port: 443},
		"http://localhost:65535/a#b@c": {Host: "localhost", Port: 65535},
	} {
		if got, err := ParseService(in); err != nil || got != want {
			t.Errorf("ParseService(%q) = %+v, %v; want %+v", in, got, err, want)
		}
	}
	for in, want := range map[string]string{
		"":                       "begins with http",
		"api.example.com":        "begins with http",
		"ftp://a.example":        "begins with http",
		"//a.example":            "begins with http",
		"http:a.example":         "names no host",
		"http://":                "names no host",
		"http://:80":             "names no host",
		"http://u:p@a.example":   "no user name or password",
		"http://a.example:0":     "not a number",
		"http://a.example:99999": "not a number",
		"http://a.example:x":     "invalid port",
		"http://*.example":       `"*" is no host`,
		"http://a b/":            "invalid character",
		"http://127.1/":          "neither a name nor",
		"http://a.example/\x7f":  "control character",
	} {
		_, err := ParseService(in)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseService(%q) error = %v; want %q", in, err, want)
		}
	}
}

func TestLoopback(t *testing.T) {
	for url, want := range map[string]bool{
		"http://127.0.0.1:8000/v1":   true,
		"http://127.9.9.9":           true,
		"http://[::1]:80":            true,
		"http://[::ffff:127.0.0.1]":  true,
		"http://LOCALHOST.":          true,
		"http://a.localhost":         true,
		"http://localhost.example":   false,
		"http://alocalhost":          false,
		"http://128.0.0.1":           false,
		"http://[::2]":               false,
		"http://127.0.0.1.example":   false,
		"https://api.example.com/v1": false,
	} {
		s, err := ParseService(url)
		if err != nil || s.Loopback() != want {
			t.Errorf("%q: loopback %v, %v; want %v", url, s.Loopback(), err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"a.example:80", "*.b", "[::1]:1", "80=unix:/x", "80=a:1", "http://a/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if p, err := ParseHost(s); err == nil {
			if again, err := ParseHost(p.String()); err != nil || again != p {
				t.Errorf("ParseHost(%q) = %+v; written and read again %+v, %v", s, p, again, err)
			}
		}
		if p, err := ParsePort(s); err == nil {
			if again, err := ParsePort(p.String()); err != nil || again != p {
				t.Errorf("ParsePort(%q) = %+v; written and read again %+v, %v", s, p, again, err)
			}
		}
		_, _ = ParseService(s)
	})
}
