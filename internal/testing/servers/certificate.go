package servers

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
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

// SelfSigned returns a certificate that is its own authority, and may sign others.
func SelfSigned(t testing.TB, hosts ...string) *Certificate {
	t.Helper()
	return issue(t, nil, &x509.Certificate{IsCA: true, BasicConstraintsValid: true, NotAfter: time.Now().Add(time.Hour)}, hosts)
}

// Sign returns a certificate for hosts, by default for 127.0.0.1 and localhost.
func (c *Certificate) Sign(t testing.TB, hosts ...string) *Certificate {
	t.Helper()
	return issue(t, c, &x509.Certificate{
		NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, hosts)
}

func issue(t testing.TB, by *Certificate, template *x509.Certificate, hosts []string) *Certificate {
	t.Helper()
	if len(hosts) == 0 {
		hosts = []string{"127.0.0.1", "localhost"}
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template.Subject = pkix.Name{CommonName: rand.Text()} // a verifier finds an authority by its name
	template.SerialNumber, template.NotBefore = big.NewInt(time.Now().UnixNano()), time.Now().Add(-2*time.Hour)
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

// Load returns the certificate for a server or client in this process.
func (c *Certificate) Load(t testing.TB) tls.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
	must(t, err)
	return pair
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
