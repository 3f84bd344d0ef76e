package wire

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// idle is a connection that nothing dials.
func idle() *connection {
	return newConnection(redis.Options{Addr: "127.0.0.1:1"}, &trust{began: time.Now()}, primary, nil)
}

// A deadline ends with whichever comes first: its time, its parent, its parent's deadline. Done
// is closed, no matter when it was asked for.
// Mutants: the alarm is not set; the parent is not followed; Done is open after the end.
func TestDeadlineEnds(t *testing.T) {
	t.Parallel()
	boss := errors.New("the boss")
	for name, c := range map[string]struct {
		parent     func() (context.Context, context.CancelFunc)
		after      time.Duration
		err, cause error
	}{
		"its time": {func() (context.Context, context.CancelFunc) { return context.Background(), func() {} }, 3 * time.Second, context.DeadlineExceeded, &noAnswerError{3 * time.Second}},
		"its parent": {func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(context.Background())
			time.AfterFunc(time.Second, func() { cancel(boss) })
			return ctx, func() {}
		}, time.Second, context.Canceled, boss},
		"its parent's deadline": {func() (context.Context, context.CancelFunc) {
			return context.WithTimeoutCause(context.Background(), 2*time.Second, boss)
		}, 2 * time.Second, context.DeadlineExceeded, boss},
	} {
		for _, early := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := c.parent()
				defer cancel()
				conn, began := idle(), time.Now()
				defer conn.close()
				d := conn.limit(ctx, 3*time.Second)
				defer d.stop()
				if at, ok := d.Deadline(); !ok || name != "its parent" && at.Sub(began) != c.after {
					t.Errorf("%s: the deadline is in %v", name, at.Sub(began))
				}
				if early {
					<-d.Done()
				} else {
					time.Sleep(c.after)
					synctest.Wait()
				}
				if took := time.Since(began); took != c.after {
					t.Errorf("%s: ended after %v, want %v", name, took, c.after)
				}
				<-d.Done()
				if !errors.Is(d.Err(), c.err) || d.why().Error() != c.cause.Error() {
					t.Errorf("%s: %v, because %v", name, d.Err(), d.why())
				}
			})
		}
	}
}

// The alarm and the parent of an earlier use do not end a later one, and nothing ends a use that has stopped.
// Mutants: the alarm does not look at the time; stop clears nothing.
func TestEarlierUseEndsNothing(t *testing.T) {
	t.Parallel()
	for _, lasts := range []time.Duration{0, time.Millisecond} { // its parent is followed after half of that
		synctest.Test(t, func(t *testing.T) {
			conn := idle()
			defer conn.close()
			ctx, cancel := context.WithCancel(t.Context())
			first := conn.limit(ctx, time.Second)
			time.Sleep(lasts)
			synctest.Wait()
			first.stop()
			second := conn.limit(context.Background(), time.Minute)
			conn.alarm.ring() // as a timer does that had begun to ring
			cancel()
			time.Sleep(30 * time.Second)
			synctest.Wait()
			if first.Err() != nil || second.Err() != nil {
				t.Errorf("after half the time: %v, %v", first.Err(), second.Err())
			}
			time.Sleep(30 * time.Second)
			synctest.Wait()
			if second.Err() == nil {
				t.Error("the alarm has not rung")
			}
			second.stop()
		})
	}
}

// A request is not sent if its parent has ended, even if that is not followed yet.
//
// The end of a deadline replaces the connection during an exchange, and only then. An exchange
// does not begin after the end.
// Mutants: the end of a later exchange is aborted; the exchange begins all the same.
func TestDeadlineAborts(t *testing.T) {
	t.Parallel()
	conn := idle()
	defer conn.close()
	for _, during := range []bool{true, false} {
		d := conn.limit(context.Background(), time.Hour)
		before := conn.made
		if !d.exchange(true) {
			t.Error("the exchange did not begin")
		}
		if !during {
			d.exchange(false)
		}
		d.end(context.Canceled, context.Canceled)
		if replaced := conn.made != before; replaced != during {
			t.Errorf("replaced: %v, want %v", replaced, during)
		}
		if d.exchange(true) {
			t.Error("an exchange began after the end")
		}
		d.stop()
	}
}
