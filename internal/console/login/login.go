// Package login makes the options for Redis from a URL, passwords and certificates, for noonctl and the lottery. It also
// loads the certificates of their other TLS connections.
package login

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/redisurl"
)

// A Login has the user, the passwords and the files that are not in the URL. The texts are not percent-encoded.
type Login struct {
	User, Password, SentinelPassword string
	Files                            Files
}

// Options returns the options of a URL with the Login. An error about a file is a *FileError.
func (l Login) Options(url string) (*redis.UniversalOptions, error) {
	o, err := redisurl.Parse(url)
	if err != nil {
		return nil, err
	}
	if err := l.Files.Apply(cmp.Or(o.TLSConfig, &tls.Config{MinVersion: tls.VersionTLS12})); err != nil {
		return nil, err
	}
	switch {
	case l.Password != "" && o.Password != "", l.SentinelPassword != "" && o.SentinelPassword != "":
		return nil, errors.New("a password is in the URL, and set apart from it, too; one of the two must be left out")
	case l.SentinelPassword != "" && o.MasterName == "":
		return nil, errors.New("the URL names no Sentinels, and a password of Sentinels is set; it must begin with redis+sentinel or rediss+sentinel")
	case l.Files.Set() && o.TLSConfig == nil:
		return nil, errors.New("the URL does not use TLS; with certificates it must begin with rediss")
	case l.Files.CA != "" && o.TLSConfig.InsecureSkipVerify:
		return nil, errors.New("the URL has skip_verify, which disables the check of certificates; it must be absent if --redis-ca is set")
	}
	o.Username, o.Password = cmp.Or(l.User, o.Username), cmp.Or(l.Password, o.Password)
	o.SentinelPassword = cmp.Or(l.SentinelPassword, o.SentinelPassword)
	return o, nil
}

// Files are the names of PEM files, empty if not set.
type Files struct {
	CA   string // certificate authorities to trust instead of the system's
	Cert string // client certificate with its intermediate certificates
	Key  string // private key of the client certificate
}

// Set reports whether any file is set.
func (f Files) Set() bool { return f != Files{} }

// A FileError reports an invalid file.
type FileError struct {
	File string // "ca", "cert" or "key"
	Err  error
}

func (e *FileError) Error() string { return e.Err.Error() }
func (e *FileError) Unwrap() error { return e.Err }

// Apply adds the files that are set to the configuration of a client. The client certificate is read again at each
// handshake, so it can be replaced while the program runs. An error is a *FileError and contains no part of a key.
func (f Files) Apply(config *tls.Config) error {
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return &FileError{"ca", err}
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return &FileError{"ca", fmt.Errorf("%q contains no certificate; it must be a PEM file of certificates", f.CA)}
		}
	}
	switch {
	case f.Cert == "" && f.Key == "":
		return nil
	case f.Key == "":
		return &FileError{"key", errors.New("it is not set; it must be set together with the certificate")}
	case f.Cert == "":
		return &FileError{"cert", errors.New("it is not set; it must be set together with the key")}
	}
	if _, err := os.ReadFile(f.Key); err != nil {
		return &FileError{"key", err}
	}
	if _, err := f.pair(); err != nil {
		return &FileError{"cert", err}
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
