package clientgo_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/record"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/adapters/clientgo"
	"github.com/noonlock/noonlock/internal/testing/testenv"
)

func TestRefused(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		c := e.client(e.Direct())
		for _, bad := range []struct {
			field string
			name  string
			cfg   clientgo.Config
		}{
			{"name", "", clientgo.Config{}},
			{"name", strings.Repeat("n", 192), clientgo.Config{}},
			{"Config.Identity", "x", clientgo.Config{Identity: "a\nb"}},
			{"Config.RequestTimeout", "x", clientgo.Config{RequestTimeout: time.Millisecond}},
			{"Config.RequestTimeout", "x", clientgo.Config{RequestTimeout: -1}},
			{"Config.RequestTimeout", "x", clientgo.Config{RequestTimeout: time.Hour}},
		} {
			_, err := clientgo.NewLock(c, bad.name, bad.cfg)
			var refused *noonlock.ConfigError
			if !errors.Is(err, noonlock.ErrConfig) || !errors.As(err, &refused) || refused.Field != bad.field {
				e.Errorf("%+v: %v, want %s refused", bad, err, bad.field)
			}
		}
		if _, err := clientgo.NewLock(nil, "x", clientgo.Config{}); !errors.Is(err, noonlock.ErrConfig) {
			e.Errorf("a nil client: %v", err)
		}
		l := testenv.Call(clientgo.NewLock(c, strings.Repeat("n", 191), clientgo.Config{})).Must(e)
		testenv.Equal(e, "the identity", l.Identity(), "client")
		for _, seconds := range []int{-1, 0, 31536001} {
			err := l.Create(e.Context(), ler("a", seconds))
			if !errors.Is(err, noonlock.ErrConfig) || !strings.Contains(err.Error(), "at least 1s") {
				e.Errorf("a lease of %d s: %v", seconds, err)
			}
		}
		if err := l.Create(e.Context(), ler(strings.Repeat("x", 65536), 1)); !errors.Is(err, noonlock.ErrConfig) {
			e.Errorf("a record of more than 64 KiB: %v", err)
		}
		mustNotFound(e, l)
		must(e, l.Create(e.Context(), ler("a", 1)))
		if err := l.Update(e.Context(), ler("a", 0)); !errors.Is(err, noonlock.ErrConfig) {
			e.Errorf("an Update to no lease: %v", err)
		}
	})
}

func TestEvents(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		c := e.client(e.Direct())
		e.lockOn(c, clientgo.Config{}).RecordEvent("became leader") // no recorder
		heard := record.NewFakeRecorder(10)
		heard.IncludeObject = true
		e.lockOn(c, clientgo.Config{Identity: "100%d", EventRecorder: heard}).RecordEvent("became %s leader")
		const want = "Normal LeaderElection 100%d became %s leader involvedObject{kind=Lease,apiVersion=coordination.k8s.io/v1}"
		testenv.Equal(e, "the event", <-heard.Events, want)
	})
}

// A user with exactly the documented permissions can use all functions, for its own keys. They are the commands of the
// scripts, and those that call scripts and read the record.
func TestRights(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	const rights = "~noonlock:{clientgo/* -@all +evalsha +eval +get +set"
	text := testenv.Call(os.ReadFile("doc.go")).Must(t)
	if !strings.Contains(strings.Join(strings.Fields(strings.ReplaceAll(string(text), "//", "")), " "), rights) {
		t.Errorf("the package comment does not have %q", rights)
	}
	want := append(testenv.Commands(t, "internal/cas/lua/*.lua"), "eval", "evalsha", "get")
	for _, command := range want {
		if !slices.Contains(strings.Fields(rights), "+"+command) {
			t.Errorf("%s is not documented", command)
		}
	}
	if slices.Sort(want); len(slices.Compact(want)) != strings.Count(rights, "+") {
		t.Errorf("the commands are %q", want)
	}
	as := func(identity string) *clientgo.Lock {
		return e.lockOn(e.client(e.As("narrow", strings.Fields(rights)...)), clientgo.Config{Identity: identity})
	}
	quick := timing{lease: 2 * time.Second, deadline: time.Second, retry: 50 * time.Millisecond}
	a := e.elect(as("a"), quick).elected()
	b := e.elect(as("b"), quick)
	e.Until("b has seen a", func() bool { return b.noted("leader a") })
	a.stop()
	b.elected().stop()
	if log, err := e.Raw.ACLLog(e.Context(), 10).Result(); err != nil || len(log) > 0 {
		t.Errorf("refused: %+v, %v", log, err)
	}
}
