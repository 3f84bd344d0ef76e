package testenv

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
)

// A Log stores logged lines, or what a program prints.
type Log struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write adds a part of the output of a program.
func (s *Log) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

// Logger returns a logger that writes lines of any verbosity to the Log.
func (s *Log) Logger() logr.Logger {
	return funcr.New(func(prefix, args string) { s.add(prefix + " " + args) }, funcr.Options{Verbosity: 100})
}

// Info returns a logger that writes lines of verbosity 0 to the Log, each after the prefix.
func (s *Log) Info(prefix string) logr.Logger {
	return funcr.New(func(_, args string) { s.add(prefix + args) }, funcr.Options{})
}

// Count returns how many lines contain all of these texts.
func (s *Log) Count(texts ...string) (n int) {
	for line := range strings.Lines(s.String()) {
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
			n++
		}
	}
	return n
}

// Lines asserts that a number of lines contain all of these texts.
func (s *Log) Lines(t testing.TB, want int, texts ...string) {
	t.Helper()
	if n := s.Count(texts...); n != want {
		t.Errorf("%d lines have %q, want %d:\n%s", n, texts, want, s)
	}
}

func (s *Log) add(line string) { _, _ = s.Write([]byte(line + "\n")) }

func (s *Log) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// DependencyLog stores the lines that go-redis logs. go-redis has one logger per process.
var DependencyLog Log

// Printf implements the logger interface of go-redis.
func (s *Log) Printf(_ context.Context, format string, v ...any) { s.add(fmt.Sprintf(format, v...)) }
