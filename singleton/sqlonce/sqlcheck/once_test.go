package sqlcheck

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/singleton/sqlonce"
)

func TestAppliedOnce(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, d *database) {
		n := d.node(t, sqlonce.Config{}, nil)
		n.apply(t, noon(0, 5), true)
		n.apply(t, noon(0, 5), false) // the same run again
		n.apply(t, noon(0, 6), false) // another run of the same tick
		n.apply(t, noon(1, 6), true)  // a new tick with the same token
		n.expect(t, noon(0, 0), 1, 1)
		n.expect(t, noon(1, 0), 1, 1)

		var tick, attempt, token, at int64
		var holder string
		first := n.db.QueryRowContext(t.Context(), "SELECT tick, attempt, token, holder, applied_at FROM noonlock_markers ORDER BY tick LIMIT 1")
		testenv.Must(t, first.Scan(&tick, &attempt, &token, &holder, &at))
		if tick != noon(0, 0).Tick.UnixMilli() || attempt != 1 || token != 5 || holder != "holder-5" || time.Since(time.UnixMilli(at)).Abs() > time.Hour {
			t.Errorf("the marker has tick %d, attempt %d, token %d, holder %q, applied_at %d", tick, attempt, token, holder, at)
		}
		for i, job := range []string{"strasse", "Strasse", "straße", "strässe", "str😀sse"} { // which some collations do not distinguish
			run := noon(0, uint64(10-i)) // decreasing, so that a shared fence would refuse
			run.Job = job
			n.apply(t, run, true)
		}
		longest := noon(0, 1<<63-1)
		longest.Job, longest.Holder = strings.Repeat("j", 200), strings.Repeat("h", 255)
		testenv.Call(n.once.Do(t.Context(), longest, func(context.Context, *sql.Tx) error { return nil })).Must(t)
	})
}

// Eight processes with increasing tokens run concurrently. Exactly one commits.
func TestConcurrentRuns(t *testing.T) {
	t.Parallel()
	for name, overlaps := range map[string]int{"per job": 0, "per tick": 1, "mixed": 2} { // each, or each second one, locks the row of its tick
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			on(t, func(t *testing.T, d *database) {
				const replicas, ticks = 8, 5
				var nodes []*node
				for range replicas {
					nodes = append(nodes, d.node(t, sqlonce.Config{}, nil))
				}
				for tick := range ticks {
					var all sync.WaitGroup
					var applied atomic.Int32
					start := make(chan struct{})
					for i, n := range nodes {
						all.Go(func() {
							run := noon(tick, uint64(1+tick*replicas+i))
							run.Overlap = overlaps > 0 && i%overlaps == 0
							<-start
							did, err := n.once.Do(t.Context(), run, n.effect(run))
							if err != nil && !errors.Is(err, sqlonce.ErrStaleToken) {
								t.Errorf("token %d: %v", run.Token, err)
							}
							if did {
								applied.Add(1)
							}
						})
					}
					close(start)
					all.Wait()
					testenv.Equal(t, fmt.Sprint("times that it was applied, tick ", tick), applied.Load(), 1)
					nodes[0].expect(t, noon(tick, 0), 1, 1)
				}
			})
		})
	}
}

// FAULTS 2: a holder is frozen between its check and its write.
func TestStaleTokenIsRefused(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, d *database) {
		n := d.node(t, sqlonce.Config{}, nil)
		n.apply(t, noon(0, 7), true)
		for _, run := range []sqlonce.Marker{noon(0, 6), noon(1, 6)} {
			did, err := n.once.Do(t.Context(), run, n.effect(run))
			var stale *sqlonce.StaleTokenError
			if did || !errors.Is(err, sqlonce.ErrStaleToken) || !errors.As(err, &stale) {
				t.Fatalf("Do with a stale token = %v, %v", did, err)
			}
			if stale.Given != 6 || stale.Seen != 7 || !stale.Tick.Equal(run.Tick) {
				t.Errorf("error = %+v", stale)
			}
		}
		n.expect(t, noon(0, 0), 1, 1)
		n.expect(t, noon(1, 0), 0, 0)

		// If ticks may overlap, a token fences only its own tick.
		overlapping := func(i int, token uint64) sqlonce.Marker {
			run := noon(i, token)
			run.Overlap = true
			return run
		}
		n.apply(t, overlapping(2, 6), true)
		testenv.Call(n.once.Do(t.Context(), overlapping(2, 5), n.effect(noon(2, 5)))).MustFail(t, sqlonce.ErrStaleToken)
	})
}

// The context ends while Do waits for the fence row.
func TestCancelWhileWaiting(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, d *database) {
		a, b := d.node(t, sqlonce.Config{}, nil), d.node(t, sqlonce.Config{}, nil)
		ctx, cancel := context.WithTimeoutCause(t.Context(), 300*time.Millisecond, errors.New("lease lost"))
		defer cancel()
		_, err := a.once.Do(t.Context(), noon(0, 1), func(context.Context, *sql.Tx) error {
			did, err := b.once.Do(ctx, noon(0, 2), b.effect(noon(0, 2)))
			if did || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the waiting Do = %v, %v; want the context's error", did, err)
			}
			return nil
		})
		testenv.Must(t, err)
		b.apply(t, noon(0, 2), false)
	})
}

func TestCreateTablesAtOnce(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, d *database) {
		var all sync.WaitGroup
		for range 8 {
			db := d.pool(t, nil)
			all.Go(func() {
				once, err := sqlonce.New(db, d.dialect, sqlonce.Config{TablePrefix: "fresh"})
				if err == nil {
					err = errors.Join(once.CreateTables(t.Context()), once.CreateTables(t.Context()))
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	})
}

// The marker of a triggered run is pruned by the time of its trigger, and the run is then refused like others.
func TestPrune(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct{ overlap, triggered bool }{
		"per job": {}, "overlapping": {overlap: true}, "triggers": {triggered: true}, "overlapping triggers": {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			on(t, func(t *testing.T, d *database) {
				n := d.node(t, sqlonce.Config{}, nil)
				day := func(i int) sqlonce.Marker {
					run := noon(0, uint64(i+1))
					run.Overlap, run.Triggered = of.overlap, of.triggered
					run.Tick = time.Date(2020, 1, 1+i, 12, 0, 0, 0, time.UTC)
					return run
				}
				for i := range 4 {
					n.apply(t, day(i), true)
				}
				other := day(0)
				other.Job = "other"
				n.apply(t, other, true)
				if deleted, err := n.once.Prune(t.Context(), "lottery", day(2).Tick); err != nil || deleted != 2 {
					t.Fatalf("Prune = %d, %v; want 2", deleted, err)
				}
				late := day(1)
				late.Token = 100
				testenv.Call(n.once.Do(t.Context(), late, n.effect(late))).MustFail(t, sqlonce.ErrPruned)
				n.expect(t, late, 1, 0)
				again := day(2)
				again.Token = 100
				n.apply(t, again, false) // still there
				n.expect(t, other, 1, 1)
				// An earlier limit does not lower the fence.
				if deleted, err := n.once.Prune(t.Context(), "lottery", day(1).Tick); err != nil || deleted != 0 {
					t.Fatalf("Prune = %d, %v; want 0", deleted, err)
				}
				testenv.Call(n.once.Do(t.Context(), late, n.effect(late))).MustFail(t, sqlonce.ErrPruned)
			})
		})
	}
}

// The fence alone in a transaction of the user's: it stays raised if the transaction
// commits. Other names, and jobs with the same name, have separate fences. Pruning keeps
// them.
func TestAdmit(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, d *database) {
		n := d.node(t, sqlonce.Config{}, nil)
		write := func(name string, token uint64, commit bool) error {
			tx := testenv.Call(n.db.BeginTx(t.Context(), nil)).Must(t)
			defer tx.Rollback() //nolint:errcheck // after Commit it has nothing to do
			if err := n.once.Admit(t.Context(), tx, name, token); err != nil {
				return err
			}
			if err := n.write(t.Context(), tx, noon(0, token)); err != nil || !commit {
				return err
			}
			return tx.Commit()
		}
		for i, c := range []struct {
			name   string
			token  uint64
			commit bool
			want   error
		}{
			{"lottery", 5, true, nil},
			{"lottery", 5, true, nil},
			{"lottery", 4, true, sqlonce.ErrStaleToken},
			{"lottery", 9, false, nil},
			{"lottery", 6, true, nil},
			{"lottery", 5, true, sqlonce.ErrStaleToken},
			{"other", 1, true, nil},
		} {
			err := write(c.name, c.token, c.commit)
			var stale *sqlonce.StaleTokenError
			if !errors.Is(err, c.want) || errors.As(err, &stale) && (stale.Job != c.name || stale.Given != c.token || stale.Seen <= c.token || !stale.Tick.IsZero()) {
				t.Errorf("%d: %s with token %d: %v, want %v", i, c.name, c.token, err, c.want)
			}
		}
		n.expect(t, noon(0, 0), 4, 0)
		n.apply(t, noon(1, 1), true) // a job with the same name
		testenv.Call(n.once.Prune(t.Context(), "lottery", time.Now().Add(-time.Minute).Truncate(time.Second))).Must(t)
		testenv.MustIs(t, write("lottery", 5, true), sqlonce.ErrStaleToken)
	})
}
