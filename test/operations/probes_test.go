//go:build linux

package operations

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/noonlock/noonlock/healthz"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/singleton"
)

// probes has a lottery whose Redis refuses a right, and is then down.
func probes(w *world) {
	w.lottery("")
	w.raw.As("app", "+@all", "~*", "&*")
	url := "redis://app:secret@" + w.redis.Addr()
	w.env = append(w.env, "LOTTERY_REDIS="+url, "NOONLOCK_REDIS="+url)
	one := w.replica("one")
	one.draws()
	one.answers(w.take(w, "`/livez`", "`/livez`")[0], http.StatusOK, `^ok$`)
	one.answers(w.take(w, "`/readyz`", "`/readyz`")[0], http.StatusOK, `^ok$`)
	checks := w.take(w, "`/healthz`", "`/healthz` | the checks of `/livez` and `/readyz`, except for stopping")
	one.answers(checks[0]+"?verbose", http.StatusOK, `(?s)draw ok.*ledger ok.*database ok`)
	one.metric("noonlock_job_clock_offset_seconds ")
	w.take(w, "`/metrics`", "`/metrics`")
	one.answers(w.take(w, "`/statusz/`", "`/statusz/`")[0], http.StatusOK, `page.js`)
	w.prints(w.take(w, "`lottery serve`", "`lottery serve`")[0]+" --help", 0, w.take(w, "`lottery serve`", "`--drain`, 15 s")[0][1:]+` time\n.*\(default 15s\)`)

	const unready = "replicas are not ready"
	reasons := w.take(w, unready, "`/readyz?verbose` names the failed check; `/readyz/ledger` (or another check) gives the reason; `noonctl doctor` names a missing right or setting")
	w.raw.As("app", "+@all", "~*", "&*", "-@scripting")
	one.answers(reasons[0], http.StatusInternalServerError, `\[-\]ledger failed`)
	cannot := w.take(w, "LotteryCannotClaim", "`noonctl doctor` shows what is wrong with Redis; `/readyz?verbose` of any pod; `/readyz/ledger` or `/readyz/database` gives the reason")
	one.answers(cannot[2], http.StatusInternalServerError, `evalsha`)
	w.prints(reasons[2], 1, `^fail +rights .*NOPERM .*eval`)
	w.raw.As("app", "+@all", "~*", "&*")
	one.answers("/readyz", http.StatusOK, `^ok$`) // without a restart

	feed := w.cron("feed", "exit 0")
	feed.answers("/readyz", http.StatusOK, `^ok$`)
	w.redis.Stop()
	alert := w.take(w, "NoonctlCannotClaim", "`noonctl doctor` shows what is wrong with Redis; `/readyz/job` of any pod gives the reason")
	feed.answers(alert[1], http.StatusInternalServerError, `refused`)
	one.answers(cannot[1], http.StatusInternalServerError, `\[-\]ledger failed`)
	one.answers(cannot[2], http.StatusInternalServerError, `refused`)
	one.answers(reasons[1], http.StatusInternalServerError, `refused`)
	w.prints(cannot[0], 69, `^fail +connection .*refused`)
	const section = "Probes"
	one.answers(w.take(w, section, "`/livez` never depends on Redis or the database")[0], http.StatusOK, `^ok$`)
	parts := w.take(w, section, "`?verbose` lists the checks, and `/readyz/ledger` gives the reason for one check. So mount a handler of `healthz` at both `/readyz` and `/readyz/`")
	one.answers(parts[3]+parts[0], http.StatusInternalServerError, `\[\+\]stopping ok`)
	one.answers(parts[1], http.StatusInternalServerError, `refused`)
	one.answers(parts[4], http.StatusInternalServerError, ``)
	one.metric(`noonlock_script_errors_total\{`)
	w.redis.Restart(w)
	w.raw.As("app", "+@all", "~*", "&*")
	one.draws()
}

// ignored has a run whose work ignores that an operator has canceled it.
func ignored(w *world) {
	r := testenv.Call(singleton.NewRunner(w.raw.Client("worker-1"), singleton.Config{})).Must(w)
	goOn := make(chan struct{})
	testenv.Must(w, r.Add("copy", "@every 1s", func(context.Context, singleton.Run) error {
		<-goOn
		return nil
	}, singleton.JobConfig{MaxAttempts: 1}))
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { _ = r.Run(ctx) })
	defer func() {
		close(goOn)
		cancel()
		done.Wait()
	}()
	handler, err := healthz.New("livez", healthz.Config{}, healthz.Overdue("work", r.Check, 100*time.Millisecond))
	testenv.Must(w, err)
	server := httptest.NewServer(handler)
	defer server.Close()
	check := w.take(w, "a replica is not alive", "`/livez?verbose`, and the log of the replica: work continues after its context has ended, because its lease or its drain is over or after `noonctl cancel`")
	path := server.URL + check[0]
	w.prints("noonctl describe job copy", 0, ` running .* worker-1 `)
	answers(w, path, http.StatusOK, `\[\+\]work ok`)
	w.must(check[1] + " copy")
	answers(w, path, http.StatusInternalServerError, `\[-\]work failed`)
}
