package election

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/noonlock/noonlock/internal/wire"
)

// Terms returns the newest 100 terms of the last week, newest first. Of a LeaderRecord, each has the Holder, the
// Token, and when it was Acquired and Released: when the leader resigned, or when the next one took
// over. A term that was over within a round trip may be missing. On a Client of lockcore.NewQuorum, the error is a
// *noonlock.ConfigError.
func (e *Election) Terms(ctx context.Context) ([]LeaderRecord, error) {
	err := e.refuseQuorum("Terms", "they are not kept on several servers")
	var now LeaderRecord
	if err == nil {
		now, err = e.Record(ctx)
	}
	var reply any
	if err == nil {
		reply, err = e.lock.Ask(ctx, wire.Command("lrange", e.keys.terms, "0", "-1").On(e.keys.terms))
	}
	rows, _ := reply.([]any)
	all := []LeaderRecord{}
	released := now.Released
	for _, row := range rows {
		r := LeaderRecord{Released: released}
		var begun, before int64 // ms; before is 0 if the leader of the term before did not resign
		if _, err := fmt.Sscan(wire.Text(row), &r.Token, &begun, &before); err != nil {
			return nil, e.opError("terms", errSpoilt, err)
		}
		r.Holder = strings.SplitN(wire.Text(row), " ", 4)[3]
		r.Acquired = time.UnixMilli(begun).UTC()
		if released = r.Acquired; before > 0 {
			released = time.UnixMilli(before).UTC()
		}
		all = append(all, r)
	}
	return all, e.opError("terms", err)
}
