package testenv

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
)

// A Log keeps every line that was logged, of any verbosity.
type Log struct {
	mu    sync.Mutex
	lines []string
}

// Logger writes into the log.
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

// DependencyLog is what go-redis logs: the process has one logger for it.
var DependencyLog redisLog

type redisLog struct{ Log }

// Printf is go-redis's interface of a logger.
func (l *redisLog) Printf(_ context.Context, format string, v ...any) {
	l.add(fmt.Sprintf(format, v...))
}
