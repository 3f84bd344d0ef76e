package testenv

import (
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
)

// BadLoggers returns loggers of applications that fail, by name. Each function makes one for a
// test in a bubble. Call it before you create what logs.
func BadLoggers() map[string]func(e *Env) logr.Logger {
	all := funcr.Options{Verbosity: 100}
	return map[string]func(e *Env) logr.Logger{
		"stuck": func(e *Env) logr.Logger {
			free := make(chan struct{})
			e.Cleanup(func() { close(free) })
			return funcr.New(func(string, string) { <-free }, all)
		},
		"slow": func(e *Env) logr.Logger {
			e.Cleanup(func() { time.Sleep(time.Hour) }) // the bubble ends after the last line
			return funcr.New(func(string, string) { time.Sleep(100 * time.Millisecond) }, all)
		},
		"panics": func(*Env) logr.Logger {
			return funcr.New(func(string, string) { panic("the logger panics") }, all)
		},
	}
}
