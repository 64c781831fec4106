package integration

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// web serves what clients of HTTP ask for: a page, uploads, an index of Python packages, a registry of npm's, a chat API that
// streams, and a git repository. It returns the ports without and with TLS, and the certificate that the latter's is signed by.
func web(t *testing.T, repositories string) (plain, secure, ca string) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/hello", func(out http.ResponseWriter, _ *http.Request) { fmt.Fprintln(out, "hello from outside") })
	mux.HandleFunc("/size", func(out http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprintln(out, n, err)
	})
	serveFile := func(path string, content []byte) {
		mux.HandleFunc(path, func(out http.ResponseWriter, _ *http.Request) { _, _ = out.Write(content) })
	}
	const wheel = "sandboxrun_demo-1.0-py3-none-any.whl"
	serveFile("/files/"+wheel, demoWheel(t))
	serveFile("/simple/sandboxrun-demo/", []byte(`<!DOCTYPE html><a href="../../files/`+wheel+`">`+wheel+`</a>`))
	tarball := demoTarball(t)
	serveFile("/npm/sandboxrun-demo/-/sandboxrun-demo-1.0.0.tgz", tarball)
	mux.HandleFunc("/npm/sandboxrun-demo", func(out http.ResponseWriter, r *http.Request) { registry(out, r, tarball) })
	chat := &chat{arrived: map[string]chan struct{}{}}
	mux.HandleFunc("/v1/chat/completions", chat.stream)
	mux.HandleFunc("/seen", chat.seen)
	mux.Handle("/git/", &cgi.Handler{
		Path: "/usr/lib/git-core/git-http-backend", Root: "/git", Dir: repositories, Stderr: io.Discard,
		Env: []string{"GIT_PROJECT_ROOT=" + repositories, "GIT_HTTP_EXPORT_ALL=1", "HOME=" + repositories, "PATH=" + systemPath},
	})

	a := httptest.NewServer(mux)
	t.Cleanup(a.Close)
	b := httptest.NewUnstartedServer(mux)
	b.EnableHTTP2 = true
	ca, b.TLS = certificates(t)
	b.StartTLS()
	t.Cleanup(b.Close)
	return port(a.Listener), port(b.Listener), ca
}

func port(l net.Listener) string {
	_, p, _ := net.SplitHostPort(l.Addr().String()) // a listener's always has one
	return p
}

// chat streams answers of two words. The second is sent when somebody has said that the first has arrived, so that what
// keeps a stream together until its end is found out.
type chat struct {
	mu      sync.Mutex
	arrived map[string]chan struct{}
}

func (c *chat) channel(r *http.Request) chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := r.URL.Query().Get("id")
	if c.arrived[id] == nil {
		c.arrived[id] = make(chan struct{}, 1)
	}
	return c.arrived[id]
}

func (c *chat) seen(_ http.ResponseWriter, r *http.Request) { c.channel(r) <- struct{}{} }

func (c *chat) stream(out http.ResponseWriter, r *http.Request) {
	var ask struct{ Stream bool }
	if err := json.NewDecoder(r.Body).Decode(&ask); err != nil || !ask.Stream {
		http.Error(out, fmt.Sprint("no order to stream: ", err), http.StatusBadRequest)
		return
	}
	out.Header().Set("Content-Type", "text/event-stream")
	say := func(word string) {
		fmt.Fprintf(out, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"%s\"}}]}\n\n", word)
		out.(http.Flusher).Flush()
	}
	say("first")
	select {
	case <-c.channel(r):
		say("second")
	case <-time.After(20 * time.Second):
		say("late")
	}
	fmt.Fprint(out, "data: [DONE]\n\n")
}

// demoWheel is a Python package whose word is "wheel".
func demoWheel(t *testing.T) []byte {
	t.Helper()
	var buf bytes.Buffer
	z := zip.NewWriter(&buf)
	const info = "sandboxrun_demo-1.0.dist-info/"
	files := [][2]string{
		{"sandboxrun_demo.py", "word = 'wheel'\n"},
		{info + "METADATA", "Metadata-Version: 2.1\nName: sandboxrun-demo\nVersion: 1.0\n"},
		{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{info + "RECORD", "sandboxrun_demo.py,,\n" + info + "METADATA,,\n" + info + "WHEEL,,\n" + info + "RECORD,,\n"},
	}
	for _, f := range files {
		out, err := z.Create(f[0])
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(out, f[1])
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// demoTarball is an npm package whose word is "tarball".
func demoTarball(t *testing.T) []byte {
	t.Helper()
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	archive := tar.NewWriter(z)
	for _, f := range [][2]string{
		{"package/package.json", `{"name": "sandboxrun-demo", "version": "1.0.0", "main": "index.js"}`},
		{"package/index.js", `exports.word = "tarball";`},
	} {
		if err := archive.WriteHeader(&tar.Header{Name: f[0], Mode: 0o644, Size: int64(len(f[1])), ModTime: time.Now()}); err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(archive, f[1])
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// registry answers npm's question what there is of the package.
func registry(out http.ResponseWriter, r *http.Request, tarball []byte) {
	sum := sha512.Sum512(tarball)
	out.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(out).Encode(object{ // whoever has gone does not wait for it
		"name": "sandboxrun-demo", "dist-tags": object{"latest": "1.0.0"},
		"versions": object{"1.0.0": object{
			"name": "sandboxrun-demo", "version": "1.0.0", "main": "index.js",
			"dist": object{
				"tarball":   "http://" + r.Host + "/npm/sandboxrun-demo/-/sandboxrun-demo-1.0.0.tgz",
				"integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:]),
			},
		}},
	})
}

// certificates makes an authority, whose certificate it returns, and what a server of the name svc.test needs.
func certificates(t *testing.T) (ca string, config *tls.Config) {
	t.Helper()
	sign := func(c, by *x509.Certificate, key, byKey *ecdsa.PrivateKey) []byte {
		der, err := x509.CreateCertificate(rand.Reader, c, by, &key.PublicKey, byKey)
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	var keys [2]*ecdsa.PrivateKey
	for i := range keys {
		var err error
		if keys[i], err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			t.Fatal(err)
		}
	}
	from, to := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, NotBefore: from, NotAfter: to,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der := sign(authority, authority, keys[0], keys[0])
	authority, err := x509.ParseCertificate(der) // it has got an id now, to which the other refers
	if err != nil {
		t.Fatal(err)
	}
	server := sign(&x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: granted}, DNSNames: []string{granted}, NotBefore: from, NotAfter: to,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, authority, keys[1], keys[0])
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return string(text), &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{server}, PrivateKey: keys[1]}}}
}
