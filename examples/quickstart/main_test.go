package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// The program runs its job, answers its probes and counts the run. SIGTERM stops it.
func TestQuickstart(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := free.Addr().String()
	free.Close()
	t.Setenv("HTTP_ADDR", addr)
	t.Setenv("REDIS_URL", "redis://"+miniredis.RunT(t).Addr())

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	for path, want := range map[string]string{
		"/livez":         "ok",
		"/livez/runner":  "^ok$",
		"/readyz":        "ok",
		"/readyz/runner": "^ok$",
		"/metrics":       `outcome="succeeded"} [1-9]`,
	} {
		for !regexp.MustCompile(want).MatchString(get(ctx, t, "http://"+addr+path)) {
			select {
			case <-time.After(20 * time.Millisecond):
			case err := <-ended:
				t.Fatalf("the program ended before %s contained %q: %v", path, want, err)
			}
		}
	}
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if err := self.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// get returns the body of a page, or "" if the server does not answer.
func get(ctx context.Context, t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return string(body)
}
