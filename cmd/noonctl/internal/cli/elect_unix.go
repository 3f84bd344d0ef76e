//go:build unix

package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"

	"github.com/noonlock/noonlock/cmd/noonctl/internal/podlabel"
	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/healthz"
	"github.com/noonlock/noonlock/internal/output"
	"github.com/noonlock/noonlock/lockcore"
)

// An electing is one call of elect.
type electing struct {
	*app
	name, identity, http string
	podLabel             string
	lease                time.Duration
	argv                 []string

	signals <-chan os.Signal
	asked   context.Context // ends with the first signal that asks for the end
	label   *podlabel.Label // nil: none
	elector *election.LeaderElector
	end     context.CancelFunc // of the campaign

	mu      sync.Mutex
	token   uint64        // 0: this replica does not lead
	leading chan struct{} // closed while this replica leads; replaced when it stops
	ended   error         // of the command, when it has ended by itself or could not be started, or of its lease
}

// maxWait limits how long a request to /leader waits.
const maxWait = 30 * time.Second

func (a *app) electCommand() *cobra.Command {
	e := &electing{app: a, leading: make(chan struct{})}
	cmd := &cobra.Command{
		Use: "elect NAME [flags] [-- COMMAND [ARG...]]", Short: "Take part in an election, and run a command while leading",
		Long: `elect campaigns in the election. While it leads, it runs the command. If leadership is lost, the
command is stopped as by run: SIGTERM, and SIGKILL before another replica may lead. elect then
campaigns again. If the command ends by itself, elect resigns and ends with its exit code. As with
run, the command has ended when all processes of its group have.

The command has these environment variables:

    NOONLOCK_ELECTION   the name of the election
    NOONLOCK_TOKEN      the fencing token of the leadership, greater than that of every earlier one

On HUP, INT, QUIT or TERM, elect passes the signal on to the command, waits until it has ended,
and then resigns, so that the next replica leads at once. It waits without limit and keeps
the lease meanwhile. If the lease ends nevertheless, the exit code is 76.

With --http, elect answers

    GET /         the leader and this replica, as JSON
    GET /leader   200 if this replica leads, otherwise 503. As the readiness probe of a container,
                  it makes a Service send traffic only to the leader. With ?wait=900ms, a replica
                  that does not lead answers when it leads, or after this time: so a probe
                  notices a new leader before its next period

With --pod-label, the pod has this label while this replica leads, so that a selector finds the
leader. elect removes it at the start, when it is asked to stop, and when leadership ends, and only
then resigns; if the API of Kubernetes does not answer, it resigns after two seconds. The service
account of the pod needs the right to patch pods. POD_NAME must be the name of the pod if HOSTNAME
is not. If the container is killed, the pod keeps the label until the container has started again;
GET /leader as its readiness probe keeps the pod out of a Service meanwhile.

Without a command, elect is a sidecar: it leads, and another container asks it.`,
		Example: `  noonctl elect controller -- ./controller
  noonctl elect controller --http 127.0.0.1:4040
  noonctl elect controller --http :4040 --pod-label leader=yes`,
		Args: func(cmd *cobra.Command, args []string) error {
			dash := cmd.ArgsLenAtDash()
			if dash < 0 && len(args) == 1 || dash == 1 && len(args) > 1 {
				return nil
			}
			return usage(errors.New("noonctl elect needs a NAME, and -- before a command"))
		},
		ValidArgsFunction: a.completeNames(electionKind, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			e.name, e.argv = args[0], args[1:]
			return e.run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	a.exports(cmd)
	flags.StringVar(&e.http, "http", "", "address to answer HTTP requests at, such as 127.0.0.1:4040")
	flags.DurationVar(&e.lease, "lease", 15*time.Second, "how long the other replicas wait if this one dies")
	flags.StringVar(&e.identity, "identity", "", "name of this replica that others see (default: user@host/PID)")
	flags.StringVar(&e.podLabel, "pod-label", "", "label KEY=VALUE that this pod has while it leads")
	e.replicasFlag(flags)
	return cmd
}

func (e *electing) run(ctx context.Context) error {
	if len(e.argv) == 0 && e.http == "" && e.podLabel == "" {
		return usage(errors.New("elect needs a command, --http or --pod-label"))
	}
	if e.lease < 100*time.Millisecond {
		return usage(fmt.Errorf("--lease is %s; it must be at least 100ms", e.lease))
	}
	if len(e.argv) > 0 {
		if _, err := findCommand(e.argv); err != nil {
			return err
		}
	}
	identity := holderIdentity(e.identity)
	log := e.logger()
	closeAll, export, err := e.connectExporting(ctx, lockcore.Config{Identity: identity, Logger: log}, log)
	if err != nil {
		return err
	}
	defer closeAll()
	e.elector, err = election.NewLeaderElector(e.client, e.name, election.Callbacks{
		OnStartedLeading: e.lead, OnStoppedLeading: func() {},
	}, election.Config{LeaseDuration: e.lease})
	if err != nil {
		return err
	}
	err = export(healthz.Ready("election", e.elector.Ready), healthz.Overdue("election", e.elector.Check, 10*time.Second))
	if err != nil {
		return err
	}
	signals, asked, stop := receiveSignals(ctx)
	defer stop()
	campaign, end := context.WithCancel(asked)
	defer end()
	e.signals, e.asked, e.end = signals, asked, end
	if e.podLabel != "" {
		e.label, err = podlabel.New(ctx, e.podLabel, e.Getenv, cmp.Or(e.ServiceAccount, podlabel.Account), log)
		if err != nil {
			return usage(fmt.Errorf("--pod-label: %w", err))
		}
		defer e.label.Close()
	}
	if e.http != "" {
		closeServer, err := e.serve(ctx, log)
		if err != nil {
			return err
		}
		defer closeServer()
	}
	log.Info("noonctl begins", "version", output.Version())
	if err := e.elector.Run(campaign); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended == nil && asked.Err() != nil && len(e.argv) > 0 {
		return endedBy(asked)
	}
	return e.ended
}

// lead runs the command while this replica leads.
func (e *electing) lead(ctx context.Context) {
	lease := lockcore.FromContext(ctx)
	e.setToken(lease.Token())
	defer e.setToken(0)
	if e.label != nil {
		defer e.labelWhileLeading(ctx)()
	}
	if len(e.argv) == 0 {
		<-ctx.Done()
		return
	}
	c, err := e.start(e.argv, []string{
		"NOONLOCK_ELECTION=" + e.name, "NOONLOCK_TOKEN=" + strconv.FormatUint(lease.Token(), 10),
	})
	if err == nil {
		var code int
		code, err = c.supervise(watch{ctx: ctx, remaining: lease.Remaining, grace: e.grace()}, e.signals)
		switch lost := errors.Is(err, errLost); {
		case lost && e.asked.Err() != nil:
			err = &exitError{exitLost, fmt.Errorf("the leadership of %q ended while the command ran", e.name)}
		case errors.Is(err, errUnguarded):
		case lost || errors.Is(context.Cause(ctx), election.ErrResigned):
			return // Run campaigns again
		default:
			err = &exitError{code: code}
		}
	}
	e.mu.Lock()
	e.ended = err
	e.mu.Unlock()
	e.end()
}

// labelWhileLeading sets the label of the pod, and removes it as soon as leadership ends or a signal
// asks for the end. The function that it returns waits until the label is removed.
func (e *electing) labelWhileLeading(ctx context.Context) (removed func()) {
	e.label.Set(true)
	remove := func() { e.label.Set(false) }
	lost, asked := context.AfterFunc(ctx, remove), context.AfterFunc(e.asked, remove) //nolint:contextcheck // either context removes it
	return func() {
		lost()
		asked()
		remove()
		const most = 2 * time.Second // the next replica waits meanwhile
		waiting, cancel := context.WithTimeout(context.WithoutCancel(ctx), most)
		defer cancel()
		e.label.Await(waiting)
	}
}

// grace returns the time from the local end of a lease until another replica may lead. The
// default of election.Config.RenewDeadline is two thirds of the lease.
func (e *electing) grace() time.Duration { return e.lease - margin(e.lease) - e.lease*2/3 }

func (e *electing) setToken(token uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.token = token
	if token > 0 {
		close(e.leading)
	} else {
		e.leading = make(chan struct{})
	}
}

func (e *electing) awaitLeadership(ctx context.Context, most time.Duration) {
	e.mu.Lock()
	leading := e.leading
	e.mu.Unlock()
	select {
	case <-leading:
	case <-time.After(most):
	case <-ctx.Done():
	}
}

// leadership is the answer to GET /.
type leadership struct {
	Election string `json:"election"`
	Leader   string `json:"leader,omitempty"` // empty: none is known
	Identity string `json:"identity"`
	Leading  bool   `json:"leading"`
	Token    uint64 `json:"token,omitempty"`
}

func (e *electing) serve(ctx context.Context, log logr.Logger) (closeServer func(), err error) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		e.mu.Lock()
		token := e.token
		e.mu.Unlock()
		answer := leadership{Election: e.name, Leader: e.elector.Leader(), Identity: e.client.Identity(), Leading: e.elector.IsLeader()}
		if answer.Leading {
			answer.Leader, answer.Token = answer.Identity, token
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
	})
	mux.HandleFunc("GET /leader", func(w http.ResponseWriter, r *http.Request) {
		if text := r.FormValue("wait"); text != "" {
			wait, err := time.ParseDuration(text)
			if err != nil || wait < 0 || wait > maxWait {
				http.Error(w, fmt.Sprintf("wait is %.60q; it must be a duration from 0s to %s", text, maxWait), http.StatusBadRequest)
				return
			}
			e.awaitLeadership(r.Context(), wait)
		}
		if !e.elector.IsLeader() {
			http.Error(w, "this replica does not lead", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "this replica leads")
	})
	closeServer, addr, err := answer(ctx, "http", e.http, mux)
	if err == nil {
		log.Info("answering HTTP requests", "addr", addr)
	}
	return closeServer, err
}
