package servers

import (
	"fmt"
	"net/http"
	"path/filepath"
	"syscall"
	"testing"
)

// EtcdServer is an etcd with one member that belongs to one test. Its methods are safe for concurrent use.
type EtcdServer struct {
	*process
}

// Etcd starts an etcd with its default settings, and returns when it is ready. With inMemory, its files are in memory,
// like Redis's. It keeps its data at a Restart. Few tests need it, so without the program the test is skipped.
func Etcd(tb testing.TB, inMemory bool) *EtcdServer {
	tb.Helper()
	program := find(nil, "etcd")
	if program == "" {
		tb.Skip("needs etcd, which is not installed (Debian package etcd-server)")
	}
	parent := ""
	if inMemory {
		parent = memory()
	}
	s := &EtcdServer{&process{name: "etcd", deathSignal: syscall.SIGKILL}}
	s.argv = func(port int) []string {
		clients, peers := "http://"+loopback(port), "http://"+loopback(port+1)
		return []string{
			program, "--data-dir", filepath.Join(s.dir, "data"), "--logger", "zap", "--log-level", "error",
			"--listen-client-urls", clients, "--advertise-client-urls", clients,
			"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "default=" + peers,
		}
	}
	s.ready = func(port int) error {
		response, err := http.Get("http://" + loopback(port) + "/health")
		if err != nil {
			return err
		}
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("/health: %s", response.Status)
		}
		return nil
	}
	must(tb, s.begin(parent, func() error { return nil }))
	s.endWith(tb)
	return s
}

// Addr returns the address for clients.
func (s *EtcdServer) Addr() string { return loopback(s.port) }
