package serve

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestKeysAreLogged: what is said of the file of keys goes where the server's log goes.
func TestKeysAreLogged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.yaml")
	if err := os.WriteFile(path, []byte("- {name: a, sha256: "+PlainKey("a", "k").Hash+"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	keys, err := ReadKeys(path)
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	testServer(t, newFake(), func(o *Options) {
		o.Keys, o.Log = keys, slog.New(slog.NewJSONHandler(&said, nil))
	})
	if err := os.WriteFile(path, []byte("- {name: ["), 0o600); err != nil {
		t.Fatal(err)
	}
	keys.refresh()
	if s := said.String(); !strings.Contains(s, `"msg":"the file of keys cannot be read again`) {
		t.Errorf("the log has %q", s)
	}
}

// writePair writes a certificate of this name and its key, both of this time.
func writePair(t *testing.T, files [2]string, name string, at time.Time) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	like := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, like, like, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for i, b := range []*pem.Block{{Type: "CERTIFICATE", Bytes: cert}, {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(files[i], pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(files[i], at, at); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCertificateAgain: files that are older than those before are read too, and broken ones are told once.
func TestCertificateAgain(t *testing.T) {
	var said bytes.Buffer
	dir := t.TempDir()
	c := &certificate{files: [2]string{filepath.Join(dir, "cert"), filepath.Join(dir, "key")},
		log: slog.New(slog.NewJSONHandler(&said, nil))}
	name := func() string {
		t.Helper()
		c.looked = time.Time{}
		pair, err := c.get(nil)
		if err != nil {
			t.Fatal(err)
		}
		return pair.Leaf.Subject.CommonName
	}
	now := time.Now()
	writePair(t, c.files, "first", now)
	if got := name(); got != "first" {
		t.Errorf("%s", got)
	}
	writePair(t, c.files, "older", now.Add(-time.Hour))
	if got := name(); got != "older" {
		t.Errorf("%s, which was replaced by older files", got)
	}
	if err := os.WriteFile(c.files[0], []byte("none"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if got := name(); got != "older" {
			t.Errorf("%s in use behind a broken one", got)
		}
	}
	if n := strings.Count(said.String(), "the old one stays"); n != 1 {
		t.Errorf("told %d times: %s", n, said.String())
	}
	writePair(t, c.files, "mended", now.Add(time.Hour))
	if got := name(); got != "mended" {
		t.Errorf("%s", got)
	}
}
