// Package podlabel sets and removes one label of the pod that this process runs in, through the
// API of Kubernetes. A selector then finds the leader's pod.
//
// It sends one kind of request, so it needs no client library. The pod's service account needs the
// right to patch pods in its namespace.
package podlabel

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/noonlock/noonlock/internal/retry"
)

// Account is the folder in which Kubernetes puts the token of the pod's service account.
const Account = "/var/run/secrets/kubernetes.io/serviceaccount"

const requestTimeout = 5 * time.Second

// A Label is a label of this process's pod. A goroutine sets or removes it, and tries again
// until the API has accepted the last call of Set. All methods can be called concurrently.
type Label struct {
	key, value string
	pod        string // namespace/name
	url        string
	account    string
	client     *http.Client
	log        logr.Logger

	changed retry.Signal       // wakes the goroutine
	end     context.CancelFunc // ends the goroutine
	done    chan struct{}      // closed when the goroutine has ended

	mu     sync.Mutex
	newest change // by the last call of Set
}

// A change sets or removes the label.
type change struct {
	on      bool
	applied chan struct{} // closed when the API has accepted it
}

// New returns the label text, of the form KEY=VALUE, and removes it from the pod, which may have it from an earlier
// process. The end of ctx does not end the Label. getenv returns the environment of a container of the pod, and account
// is the folder of the service account, normally Account.
//
// The pod's name is POD_NAME, or else HOSTNAME. HOSTNAME is not the pod's name on the network of the host, nor
// for a name of more than 63 characters.
func New(ctx context.Context, text string, getenv func(string) string, account string, log logr.Logger) (*Label, error) {
	if !validLabel.MatchString(text) {
		return nil, fmt.Errorf("the label is %q; it must be KEY=VALUE, with a key and a value that Kubernetes accepts", text)
	}
	key, value, _ := strings.Cut(text, "=")
	host, port := getenv("KUBERNETES_SERVICE_HOST"), getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return nil, errors.New("KUBERNETES_SERVICE_HOST is not set, so this process does not run in a pod")
	}
	name := cmp.Or(getenv("POD_NAME"), getenv("HOSTNAME"))
	if name == "" {
		return nil, errors.New("neither POD_NAME nor HOSTNAME is set; one must be the name of the pod")
	}
	namespace, err := os.ReadFile(filepath.Join(account, "namespace"))
	if err != nil {
		return nil, fmt.Errorf("the pod has no token of a service account (automountServiceAccountToken): %w", err)
	}
	authority, err := os.ReadFile(filepath.Join(account, "ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("the certificate of the API of Kubernetes: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("the file %s has no certificate", filepath.Join(account, "ca.crt"))
	}
	space := strings.TrimSpace(string(namespace))
	running, end := context.WithCancel(context.WithoutCancel(ctx))
	l := &Label{
		key: key, value: value, account: account, log: log,
		pod: space + "/" + name,
		url: "https://" + net.JoinHostPort(host, port) + "/api/v1/namespaces/" + url.PathEscape(space) + "/pods/" + url.PathEscape(name),
		client: &http.Client{
			Timeout:   requestTimeout,
			Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, TLSHandshakeTimeout: requestTimeout},
			// A redirect would send the token elsewhere.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		changed: retry.NewSignal(), end: end, done: make(chan struct{}), newest: change{applied: make(chan struct{})},
	}
	go l.follow(running)
	return l, nil
}

// Set sets or removes the label in the background.
func (l *Label) Set(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.newest.on != on {
		l.newest = change{on, make(chan struct{})}
		l.changed.Send()
	}
}

// Await waits until the API has accepted the last call of Set before it, and reports whether it has. It returns early
// if ctx ends. A later call of Set may replace that change before it is sent: then Await waits until ctx ends.
func (l *Label) Await(ctx context.Context) bool {
	select {
	case <-l.newestChange().applied:
		return true
	case <-ctx.Done():
		return false
	}
}

// Close ends the goroutine. The label stays as it is.
func (l *Label) Close() {
	l.end()
	<-l.done
	l.client.CloseIdleConnections()
}

// follow applies the calls of Set. It begins with a request, since an earlier process may
// have left the label.
func (l *Label) follow(ctx context.Context) {
	defer close(l.done)
	pauses := retry.Pauses(100*time.Millisecond, 5*time.Second)
	logged := "" // last error
	for accepted := (change{}); ctx.Err() == nil; {
		c := l.newestChange()
		if c == accepted {
			select {
			case <-l.changed:
			case <-ctx.Done():
			}
			continue
		}
		err := l.patch(ctx, c.on)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			close(c.applied)
			accepted, logged = c, ""
			pauses.Reset()
			l.log.Info("label of the pod changed", "pod", l.pod, "label", l.key, "set", c.on)
			continue
		case err.Error() != logged:
			logged = err.Error()
			l.log.Error(err, "the label of the pod was not changed; trying again", "pod", l.pod, "label", l.key, "set", c.on)
		}
		retry.Sleep(ctx, pauses.NextBackOff(), l.changed)
	}
}

func (l *Label) newestChange() change {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.newest
}

// patch sends one request, which can be repeated.
func (l *Label) patch(ctx context.Context, on bool) error {
	labels := map[string]any{l.key: nil} // null removes the label
	if on {
		labels[l.key] = l.value
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
	if err != nil {
		return err
	}
	token, err := os.ReadFile(filepath.Join(l.account, "token")) // Kubernetes replaces it now and then
	if err != nil {
		return fmt.Errorf("the token of the service account: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPatch, l.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	req.Header.Set("Content-Type", "application/merge-patch+json")
	resp, err := l.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20)) // read to the end, so that the connection is used again
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	var status struct{ Message string }
	if err == nil && json.Unmarshal(answer, &status) == nil && status.Message != "" {
		return fmt.Errorf("the API of Kubernetes answered %d: %s", resp.StatusCode, status.Message)
	}
	return fmt.Errorf("the API of Kubernetes answered %d", resp.StatusCode)
}

// validLabel matches a key, which may begin with a DNS name, and a value, which may be empty.
//
// Source: "Labels and Selectors" in the documentation of Kubernetes.
var validLabel = regexp.MustCompile(`^(?:[a-z0-9][-a-z0-9.]{0,252}/)?` + labelName + `=(?:` + labelName + `)?$`)

const labelName = `[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?`
