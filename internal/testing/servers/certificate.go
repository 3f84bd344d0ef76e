package servers

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A Certificate is a certificate and its key in PEM files, for servers and clients. It expires after an hour.
type Certificate struct {
	Cert, Key string         // paths of the files
	Pool      *x509.CertPool // contains the certificate only

	parsed *x509.Certificate
	key    *ecdsa.PrivateKey
}

// SelfSigned returns a certificate for 127.0.0.1, localhost and redis. It is its own authority, and may sign others.
func SelfSigned(t testing.TB) *Certificate {
	t.Helper()
	return issue(t, nil)
}

// Sign returns a certificate for the same hosts.
func (c *Certificate) Sign(t testing.TB) *Certificate {
	t.Helper()
	return issue(t, c)
}

func issue(t testing.TB, by *Certificate) *Certificate {
	t.Helper()
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: rand.Text()}, // a verifier finds an authority by its name
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: by == nil, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost", "redis"},
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	by = cmp.Or(by, &Certificate{parsed: template, key: key})
	der, err := x509.CreateCertificate(rand.Reader, template, by.parsed, key.Public(), by.key)
	must(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	folder := t.TempDir()
	c := &Certificate{Cert: filepath.Join(folder, "cert.pem"), Key: filepath.Join(folder, "key.pem"), Pool: x509.NewCertPool(), key: key}
	c.parsed, err = x509.ParseCertificate(der)
	must(t, err)
	c.Pool.AddCert(c.parsed)
	must(t, os.WriteFile(c.Cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	must(t, os.WriteFile(c.Key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
	return c
}

// RedisConf returns lines of redis.conf for a server with this certificate, which is also its authority. more are
// further lines.
func (c *Certificate) RedisConf(more ...string) []string {
	return append([]string{"tls-cert-file " + c.Cert, "tls-key-file " + c.Key, "tls-ca-cert-file " + c.Cert}, more...)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
