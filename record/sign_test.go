package record

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestSign(t *testing.T) {
	public, private, _ := ed25519.GenerateKey(nil)
	stranger, _, _ := ed25519.GenerateKey(nil)
	data, head := made(t, story("s1")...)
	other, otherHead := made(t, story("s1")...)
	path := t.TempDir()
	dir := openDir(t, path)
	signature := func(name string, h Head) []byte {
		t.Helper()
		if err := Sign(dir, name, h, private); err != nil {
			t.Fatal(err)
		}
		sig, err := os.ReadFile(filepath.Join(path, name+SignatureSuffix))
		if err != nil {
			t.Fatal(err)
		}
		return sig
	}
	sig := signature("a", head)
	if err := Sign(dir, "a", head, private); err == nil {
		t.Error("a signature was written over another")
	}
	l := lines(data)
	earlier := strings.Join(l[:7], "")
	at := verify(t, []byte(earlier), Options{}).Head
	anew := chain(append(slices.Clone(l[:6]), strings.Replace(l[6], "timeout", "exited", 1), l[7]))
	for name, c := range map[string]struct {
		record    string
		signature []byte
		key       ed25519.PublicKey
		want      string
		state     string
	}{
		"good":               {string(data), sig, public, "", SignatureGood},
		"no key":             {string(data), sig, nil, "", SignatureUnchecked},
		"none":               {string(data), nil, nil, "", SignatureNone},
		"none, with a key":   {string(data), nil, public, "record_not_signed", SignatureNone},
		"another key":        {string(data), sig, stranger, "record_bad_signature", SignatureBad},
		"changed":            {string(data), []byte(strings.Replace(string(sig), `"seq":8`, `"seq":7`, 1)), public, "record_bad_signature", SignatureBad},
		"nonsense":           {string(data), []byte("nonsense"), public, "record_bad_signature", SignatureBad},
		"another record":     {string(other), sig, public, "record_swapped", SignatureBad},
		"another's":          {string(data), signature("b", otherHead), public, "record_swapped", SignatureBad},
		"cut":                {earlier, sig, public, "record_cut record_unfinished", SignatureBad},
		"grown":              {string(data), signature("c", at), public, "record_grown", SignatureBad},
		"written anew":       {anew, sig, public, "record_bad_signature", SignatureBad},
		"an edited line too": {strings.Replace(string(data), "timeout", "exited!", 1), sig, public, "record_edited:7", SignatureBad},
	} {
		r := verify(t, []byte(c.record), Options{Signature: c.signature, Key: c.key})
		if got := codes(r); got != c.want || r.Signature != c.state {
			t.Errorf("%s: %q and %s, want %q and %s: %+v", name, got, r.Signature, c.want, c.state, r.Problems)
		}
	}
}

// Keys are those that openssl makes, and a signature is one that it accepts.
func TestSignatureIsOpenSSLs(t *testing.T) {
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Skip("no openssl")
	}
	path := t.TempDir()
	file := func(name string) string { return filepath.Join(path, name) }
	call := func(args ...string) error {
		out, err := exec.Command(openssl, args...).CombinedOutput()
		if err != nil {
			t.Logf("openssl %q: %s", args, out)
		}
		return err
	}
	for _, args := range [][]string{
		{"genpkey", "-algorithm", "ed25519", "-out", file("key")},
		{"pkey", "-in", file("key"), "-pubout", "-out", file("pub")},
		{"genpkey", "-algorithm", "x25519", "-out", file("other")},
		{"pkey", "-in", file("other"), "-pubout", "-out", file("otherpub")},
	} {
		if err := call(args...); err != nil {
			t.Skipf("this openssl cannot do it: %v", err)
		}
	}
	read := func(name string) []byte {
		data, err := os.ReadFile(file(name))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	private, err := PrivateKey(read("key"))
	if err != nil {
		t.Fatal(err)
	}
	public, err := PublicKey(read("pub"))
	if err != nil || !public.Equal(private.Public()) {
		t.Fatalf("%v", err)
	}
	for name, data := range map[string][]byte{
		"a public one": read("pub"), "another kind": read("other"), "nothing": nil, "two": append(read("key"), read("key")...),
	} {
		if _, err := PrivateKey(data); err == nil {
			t.Errorf("%s is a private key", name)
		}
	}
	for name, data := range map[string][]byte{"a private one": read("key"), "another kind": read("otherpub"), "nothing": nil} {
		if _, err := PublicKey(data); err == nil {
			t.Errorf("%s is a public key", name)
		}
	}

	head := Head{"SESSION", 7, Digest(nil)}
	if err := os.WriteFile(file("message"), []byte("sandboxrun record 1 SESSION 7 "+Digest(nil)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file("sig"), ed25519.Sign(private, head.message()), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"pkeyutl", "-verify", "-pubin", "-inkey", file("pub"), "-rawin", "-in", file("message"), "-sigfile", file("sig")}
	if err := call(args...); err != nil {
		t.Errorf("openssl does not accept the signature: %v", err)
	}
	if err := os.WriteFile(file("message"), []byte("another"), 0o600); err != nil {
		t.Fatal(err)
	}
	if call(args...) == nil {
		t.Error("openssl accepts the signature of another text")
	}
}

// The keys are those of RFC 8410, section 10.
func TestKeys(t *testing.T) {
	const (
		point   = "19bf44096984cdfe8541bac167dc3b96c85086aa30b6b6cb0c5c38ad703166e1"
		seed    = "d4ee72dbf913584ad5b6d8f1f769f8ad3afe7c28cbf1d4fbe097a88f44755842"
		private = "302e020100300506032b657004220420" + seed
		public  = "302a300506032b6570032100" + point
		both    = "3072020101300506032b657004220420" + seed +
			"a01f301d060a2a864886f70d01090914310f0c0d437572646c6520436861697273812100" + point
	)
	block := func(kind string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}) }
	raw := func(s string) []byte {
		b, err := hex.DecodeString(s)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, der := range [][]byte{raw(private), raw(both)} {
		key, err := PrivateKey(block("PRIVATE KEY", der))
		if err != nil || !bytes.Equal(key.Seed(), raw(seed)) || !bytes.Equal(key.Public().(ed25519.PublicKey), raw(point)) {
			t.Errorf("%x: %x: %v", der, key, err)
		}
		for _, bad := range mutations(der) {
			key, err := PrivateKey(block("PRIVATE KEY", bad))
			want, wantErr := x509.ParsePKCS8PrivateKey(bad)
			if err == nil && (wantErr != nil || !key.Equal(want)) {
				t.Errorf("%x: %x, crypto/x509 %x: %v", bad, key, want, wantErr)
			}
		}
	}
	der := raw(public)
	key, err := PublicKey(block("PUBLIC KEY", der))
	if err != nil || !bytes.Equal(key, raw(point)) {
		t.Errorf("%x: %v", key, err)
	}
	for _, bad := range mutations(der) {
		key, err := PublicKey(block("PUBLIC KEY", bad))
		want, wantErr := x509.ParsePKIXPublicKey(bad)
		if (err == nil) != (wantErr == nil) || err == nil && !key.Equal(want) {
			t.Errorf("%x: %x %v, crypto/x509 %x: %v", bad, key, err, want, wantErr)
		}
	}
}

// mutations are a text with one byte changed, its beginnings, and one byte more.
func mutations(text []byte) [][]byte {
	list := [][]byte{append(bytes.Clone(text), 0)}
	for i := range text {
		list = append(list, text[:i])
		for _, bit := range []byte{1, 0x80} {
			changed := bytes.Clone(text)
			changed[i] ^= bit
			list = append(list, changed)
		}
	}
	return list
}
