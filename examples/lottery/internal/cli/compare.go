package cli

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/examples/internal/inputs"
	"github.com/noonlock/noonlock/examples/lottery/internal/audit"
	"github.com/noonlock/noonlock/examples/lottery/internal/noon"
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/internal/tlsprobe"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// compare checks a range, and returns the schedules of the ledger, oldest first.
func compare(ctx context.Context, options *redis.UniversalOptions, dsn store.DSN, winners int, since, until time.Time) (seen audit.Report, schedules []singleton.ScheduleChange, err error) {
	rdb := inputs.Client(options)
	defer rdb.Close()
	if err := inputs.Ping(ctx, rdb, "job/"+noon.Job); err != nil {
		return seen, nil, tlsprobe.Explain(ctx, err, options)
	}
	client, err := lockcore.New(rdb, lockcore.Config{})
	if err != nil {
		return seen, nil, err
	}
	defer client.Close(context.WithoutCancel(ctx)) // it holds nothing
	ledger, err := singleton.NewJob(client, noon.Job)
	if err != nil {
		return seen, nil, err
	}
	st, err := store.View(ctx, dsn)
	if err != nil {
		return seen, nil, err
	}
	defer st.Close()
	if seen, err = audit.Check(ctx, st, ledger, winners, since, until); err != nil {
		return seen, nil, err
	}
	schedules, err = ledger.Schedules(ctx)
	return seen, schedules, err
}
