package testenv

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
)

// A Log stores all logged lines, of any verbosity.
type Log struct {
	mu    sync.Mutex
	lines []string
}

// Logger returns a logger that writes to the Log.
func (s *Log) Logger() logr.Logger {
	return funcr.New(func(prefix, args string) { s.add(prefix + " " + args) }, funcr.Options{Verbosity: 100})
}

func (s *Log) add(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, line)
}

func (s *Log) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.lines, "\n")
}

// DependencyLog stores the lines that go-redis logs. go-redis has one logger per process.
var DependencyLog redisLog

type redisLog struct{ Log }

// Printf implements the logger interface of go-redis.
func (l *redisLog) Printf(_ context.Context, format string, v ...any) {
	l.add(fmt.Sprintf(format, v...))
}
