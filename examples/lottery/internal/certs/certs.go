// Package certs reads the certificates by which the lottery and its servers know each
// other.
package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// Files names PEM files. The zero value is none.
type Files struct {
	CA   string // certificates of the authorities that are trusted instead of the system's
	Cert string // the client's certificate, and those between it and its authority
	Key  string // its private key
}

// Set reports whether any file is named.
func (f Files) Set() bool { return f != Files{} }

// Client is what a client brings to a TLS handshake.
type Client struct {
	// Roots are the authorities that are trusted; nil: the system's.
	Roots *x509.CertPool
	// Certificate returns the client's certificate; nil: it has none. It reads the files
	// at each handshake, so that they may be renewed while the program runs.
	Certificate func(*tls.CertificateRequestInfo) (*tls.Certificate, error)
}

// An Error names the file that was refused.
type Error struct {
	File string // "ca", "cert" or "key"
	Err  error
}

// Error returns the reason.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }

// Load reads the files. The error is an *Error and tells nothing of a key.
func (f Files) Load() (Client, error) {
	var c Client
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return c, &Error{"ca", err}
		}
		c.Roots = x509.NewCertPool()
		if !c.Roots.AppendCertsFromPEM(pem) {
			return c, &Error{"ca", fmt.Errorf("%q holds no certificate; it must be a PEM file of certificates", f.CA)}
		}
	}
	switch {
	case f.Cert == "" && f.Key == "":
		return c, nil
	case f.Key == "":
		return c, &Error{"key", errors.New("it is missing; it must be given with the certificate")}
	case f.Cert == "":
		return c, &Error{"cert", errors.New("it is missing; it must be given with the key")}
	}
	if _, err := os.ReadFile(f.Key); err != nil {
		return c, &Error{"key", err}
	}
	if _, err := f.pair(); err != nil {
		return c, &Error{"cert", err}
	}
	c.Certificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return f.pair() }
	return c, nil
}

func (f Files) pair() (*tls.Certificate, error) {
	if _, err := os.ReadFile(f.Cert); err != nil {
		return nil, err
	}
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, fmt.Errorf("%q and %q do not belong together; they must be PEM files of a certificate and its key: %w", f.Cert, f.Key, err)
	}
	return &pair, nil
}

// Apply adds what there is to a configuration.
func (c Client) Apply(config *tls.Config) {
	if c.Roots != nil {
		config.RootCAs = c.Roots
	}
	if c.Certificate != nil {
		config.GetClientCertificate = c.Certificate
	}
}
