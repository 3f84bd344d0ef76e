package singleton

import (
	"errors"
	"fmt"
	"runtime"
)

// A failure is an error of the application. Its methods do not call methods of that error,
// except for Is and As, which recover from panics: a method of a nil pointer panics, for example.
type failure struct {
	err                error
	text               string
	unknown, permanent bool
	seen               uint64
}

// failed returns err as a failure, or nil. It calls the methods of err, which may block, so it
// must run on the goroutine of the work.
func failed(err error) error {
	if err == nil {
		return nil
	}
	if f, ok := err.(*failure); ok { //nolint:errorlint // only the outermost error has been read already
		return f
	}
	f := &failure{err: err, text: textOf(err)}
	guard(func() {
		var says interface{ OutcomeUnknown() bool }
		f.unknown = errors.Is(err, ErrUnknownOutcome) || errors.As(err, &says) && says.OutcomeUnknown()
	})
	guard(func() {
		var says interface{ Permanent() bool }
		f.permanent = errors.As(err, &says) && says.Permanent()
	})
	guard(func() {
		var seer interface{ TokenSeen() uint64 }
		if errors.As(err, &seer) {
			f.seen = seer.TokenSeen()
		}
	})
	return f
}

func (f *failure) Error() string        { return f.text }
func (f *failure) OutcomeUnknown() bool { return f.unknown }
func (f *failure) Permanent() bool      { return f.permanent }
func (f *failure) TokenSeen() uint64    { return f.seen }

func (f *failure) Is(target error) (is bool) {
	guard(func() { is = errors.Is(f.err, target) })
	return is
}

func (f *failure) As(target any) (is bool) {
	guard(func() { is = errors.As(f.err, target) })
	return is
}

// panicked returns the error for work that panicked with a value.
func panicked(value any) error {
	if cause, ok := value.(error); ok {
		return fmt.Errorf("%w: %w", ErrPanic, failed(cause)) // it may have a method OutcomeUnknown
	}
	err := fmt.Errorf("%w: with a value of type %T", ErrPanic, value)
	guard(func() { err = fmt.Errorf("%w: %v", ErrPanic, value) })
	return err
}

// textOf returns the text of an error of the application.
func textOf(err error) (text string) {
	if p := guard(func() { text = err.Error() }); p != nil {
		text = fmt.Sprintf("singleton: method Error of an error of type %T panicked", err)
		if p, ok := p.(runtime.Error); ok {
			text += ": " + p.Error()
		}
	}
	return text
}

// guard calls f and returns the value with which it panicked, or nil.
func guard(f func()) (value any) {
	defer func() { value = recover() }()
	f()
	return nil
}
