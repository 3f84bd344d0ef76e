//go:build kube

package kube

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
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

// authority signs certificates. Its own certificate is in the file ca.crt of the folder.
type authority struct {
	*testing.T
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	folder string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{T: t, folder: t.TempDir()}
	a.cert = &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a.cert, a.key = a.issue("ca", a.cert)
	return a
}

// sign creates the files NAME.crt and NAME.key for a server or a client.
func (a *authority) sign(name string, hosts ...string) {
	a.Helper()
	template := &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	a.issue(name, template)
}

func (a *authority) issue(name string, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.Fatal(err)
	}
	template.SerialNumber, template.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: name}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if signer == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		a.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.Fatal(err)
	}
	for suffix, block := range map[string]*pem.Block{".crt": {Type: "CERTIFICATE", Bytes: der}, ".key": {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(a.file(name+suffix), pem.EncodeToMemory(block), 0o600); err != nil {
			a.Fatal(err)
		}
	}
	return cert, key
}

func (a *authority) file(name string) string { return filepath.Join(a.folder, name) }

// known creates the ConfigMap roots and the Secret client, which the chart uses.
func (a *authority) known(c *cluster) {
	a.Helper()
	a.sign("client")
	c.kubectl("create", "configmap", "roots", "--from-file=ca.crt="+a.file("ca.crt"))
	c.kubectl("create", "secret", "tls", "client", "--cert="+a.file("client.crt"), "--key="+a.file("client.key"))
}
