package election

import (
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

// A record that cannot be written prevents no leadership: the renewals extend the lock, and the leader logs that once.
// A candidate that finds it before it queues does not queue. On a quorum, one server that cannot store the record does
// no harm.
func TestRecordCannotBeWritten(t *testing.T) {
	onOneAndThree(t, func(e *trio) {
		a := e.election("a")
		for what, spoil := range map[error]func(i int) error{
			lockcore.ErrWrongKind: func(i int) error { return e.raw(i).Set(e.Context(), key("leader"), "a string", 0).Err() },
			ErrNewerSchema:        func(i int) error { return e.raw(i).HSet(e.Context(), key("leader"), "v", 2).Err() },
		} {
			before := e.log.Count("the leader record cannot be written")
			l := campaign(e.Env, a)
			for i := range e.servers {
				testenv.Must(e, spoil(i))
			}
			l.begin()
			e.Pass(time.Minute)
			testenv.Must(e, l.Err())
			testenv.Equal(e, "lines about it", e.log.Count("the leader record cannot be written")-before, 1)
			if err := a.prepare(e.Context()); len(e.servers) == 1 {
				testenv.MustIs(e, err, what)
			}
			testenv.Must(e, l.lease.Unlock(e.Context()))
			for i := range e.servers {
				testenv.Must(e, e.raw(i).Del(e.Context(), key("leader")).Err())
			}
		}
		if len(e.servers) > 1 {
			testenv.Must(e, e.raw(0).Set(e.Context(), key("leader"), "x", 0).Err())
		}
		testenv.Must(e, e.lead(a).lease.Unlock(e.Context()))
	})
}

// A leader without the right to write the record leads, and the record says to whom the lock is granted.
func TestRecordIsForbidden(t *testing.T) {
	t.Parallel()
	e := testenv.OnServer(t)
	var log testenv.Log
	user := e.As("mute", "~noonlock:*", "allchannels", "+@all", "-hset")
	l := campaign(e, handle(e, e.ClientWith(user, lockcore.Config{Identity: "a", Logger: log.Info("")}), 5*time.Second, nil))
	l.begin()
	e.Until("it is logged", func() bool { return log.Count("the leader record cannot be written") == 1 })
	r := testenv.Call(handle(e, e.Client("reader"), 0, nil).Record(e.Context())).Must(e)
	if r.Granted != "a" || r.Holder != "" || r.Left != 0 || l.Err() != nil {
		t.Errorf("the record is %+v, and the lease has ended: %v", r, l.Err())
	}
	testenv.Must(e, l.lease.Unlock(e.Context()))
}

// A record that nobody can read prevents no leadership: the first renewal replaces it. Nor does a list of terms of
// another type.
func TestRecordIsSpoilt(t *testing.T) {
	onOneAndThree(t, func(e *trio) {
		for i := range e.servers {
			testenv.Must(e, e.raw(i).HSet(e.Context(), key("leader"), "v", "1", "token", "x").Err())
			testenv.Must(e, e.raw(i).Set(e.Context(), key("terms"), "x", 0).Err())
		}
		a := e.election("a")
		testenv.Call(a.Record(e.Context())).MustFail(e, errSpoilt)
		testenv.Must(e, a.prepare(e.Context()))
		l := e.lead(a)
		if r, err := a.Record(e.Context()); err != nil || r.Holder != "a" || r.Token != l.lease.Token() {
			e.Errorf("the record is %+v, %v", r, err)
		}
	})
}
