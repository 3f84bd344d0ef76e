// Package certs loads the certificates for TLS connections of the programs to their servers.
package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// Files names PEM files. In the zero value, none is set.
type Files struct {
	CA   string // certificate authorities to trust instead of the system's
	Cert string // client certificate with its intermediate certificates
	Key  string // private key of the client certificate
}

// Set reports whether any file is set.
func (f Files) Set() bool { return f != Files{} }

// Client is the TLS configuration of a client.
type Client struct {
	// Roots are the trusted certificate authorities; nil: the system's.
	Roots *x509.CertPool
	// Certificate returns the client certificate; nil: there is none. It reads the files at
	// each handshake, so they can be replaced while the program runs.
	Certificate func(*tls.CertificateRequestInfo) (*tls.Certificate, error)
}

// An Error reports an invalid file.
type Error struct {
	File string // "ca", "cert" or "key"
	Err  error
}

// Error returns the reason.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }

// Load reads the files. An error is an *Error and contains no part of a key.
func (f Files) Load() (Client, error) {
	var c Client
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return c, &Error{"ca", err}
		}
		c.Roots = x509.NewCertPool()
		if !c.Roots.AppendCertsFromPEM(pem) {
			return c, &Error{"ca", fmt.Errorf("%q contains no certificate; it must be a PEM file of certificates", f.CA)}
		}
	}
	switch {
	case f.Cert == "" && f.Key == "":
		return c, nil
	case f.Key == "":
		return c, &Error{"key", errors.New("it is not set; it must be set together with the certificate")}
	case f.Cert == "":
		return c, &Error{"cert", errors.New("it is not set; it must be set together with the key")}
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
		return nil, fmt.Errorf("%q and %q are not a pair; they must be PEM files of a certificate and its private key: %w", f.Cert, f.Key, err)
	}
	return &pair, nil
}

// Secure adds the fields that are set to the TLS configuration of a Redis URL. The
// configuration is nil if the URL does not use TLS.
func (c Client) Secure(config *tls.Config) error {
	switch {
	case c.Roots == nil && c.Certificate == nil:
	case config == nil:
		return errors.New("the URL does not use TLS; with certificates it must begin with rediss")
	case config.InsecureSkipVerify && c.Roots != nil:
		return errors.New("the URL has skip_verify, which disables the check of certificates; it must be absent if --redis-ca is set")
	default:
		c.Apply(config)
	}
	return nil
}

// Apply adds the fields that are set to a configuration.
func (c Client) Apply(config *tls.Config) {
	if c.Roots != nil {
		config.RootCAs = c.Roots
	}
	if c.Certificate != nil {
		config.GetClientCertificate = c.Certificate
	}
}
