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

// An Error reports an invalid file.
type Error struct {
	File string // "ca", "cert" or "key"
	Err  error
}

// Error returns the reason.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }

// Apply adds the files that are set to the configuration of a client. The client certificate is read again at each
// handshake, so it can be replaced while the program runs. An error is an *Error and contains no part of a key.
func (f Files) Apply(config *tls.Config) error {
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return &Error{"ca", err}
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return &Error{"ca", fmt.Errorf("%q contains no certificate; it must be a PEM file of certificates", f.CA)}
		}
	}
	switch {
	case f.Cert == "" && f.Key == "":
		return nil
	case f.Key == "":
		return &Error{"key", errors.New("it is not set; it must be set together with the certificate")}
	case f.Cert == "":
		return &Error{"cert", errors.New("it is not set; it must be set together with the key")}
	}
	if _, err := os.ReadFile(f.Key); err != nil {
		return &Error{"key", err}
	}
	if _, err := f.pair(); err != nil {
		return &Error{"cert", err}
	}
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return f.pair() }
	return nil
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
