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

	"github.com/noonlock/noonlock/cmd/noonctl/internal/command"
	"github.com/noonlock/noonlock/cmd/noonctl/internal/exit"
	"github.com/noonlock/noonlock/cmd/noonctl/internal/podlabel"
	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/healthz"
	"github.com/noonlock/noonlock/internal/console/output"
	"github.com/noonlock/noonlock/lockcore"
)

type electCall struct {
	*app
	name, http, podLabel string
	lease                time.Duration
	argv                 []string

	signals     <-chan os.Signal
	stopping    context.Context // ends with the first signal to stop
	label       *podlabel.Label // nil without --pod-label
	elector     *election.LeaderElector
	endCampaign context.CancelFunc

	mu      sync.Mutex
	token   uint64        // fencing token while this replica leads
	leading chan struct{} // closed while this replica leads
	result  error         // why this process resigned for good
}

const maxWait = 30 * time.Second

func (a *app) electCommand() *cobra.Command {
	e := &electCall{app: a, leading: make(chan struct{})}
	cmd := &cobra.Command{
		Use: "elect NAME [flags] [-- COMMAND [ARG...]]", Short: "Take part in an election, and run a command while leading",
		Long: `elect campaigns in the election. While it leads, it runs the command. If leadership is lost, the
command is stopped as by run: SIGTERM, and SIGKILL before another replica may lead. elect then
campaigns again. If the command ends by itself, elect resigns and ends with its exit code. As with
run, the command has ended when all processes of its group have.

The command has these environment variables:

    NOONLOCK_ELECTION   the name of the election
    NOONLOCK_TOKEN      the fencing token of the leadership, greater than that of every earlier one

On HUP, INT, QUIT or TERM, elect passes the signal on to the command, waits until it has ended, and then
resigns, so that the next replica leads at once. It waits without limit and keeps the lease meanwhile.

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
			return exit.Usage(errors.New("noonctl elect needs a NAME, and -- before a command"))
		},
		ValidArgsFunction: a.completeNames(electionKind, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			e.name, e.argv = args[0], args[1:]
			return e.run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	a.replicaFlags(cmd, "name of this replica that others see")
	flags.StringVar(&e.http, "http", "", "address to answer HTTP requests at, such as 127.0.0.1:4040")
	flags.DurationVar(&e.lease, "lease", 15*time.Second, "how long the other replicas wait if this one dies")
	flags.StringVar(&e.podLabel, "pod-label", "", "label KEY=VALUE that this pod has while it leads")
	return cmd
}

func (e *electCall) run(ctx context.Context) error {
	if len(e.argv) == 0 && e.http == "" && e.podLabel == "" {
		return exit.Usage(errors.New("elect needs a command, --http or --pod-label"))
	}
	if e.lease < 100*time.Millisecond {
		return exit.Usage(fmt.Errorf("--lease is %s; it must be at least 100ms", e.lease))
	}
	if len(e.argv) > 0 {
		if _, err := command.Find(e.argv); err != nil {
			return err
		}
	}
	log := e.logger()
	closeAll, serveHealth, err := e.connectReplica(ctx)
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
	err = serveHealth(healthz.Ready("election", e.elector.Ready), healthz.Overdue("election", e.elector.Check, 10*time.Second))
	if err != nil {
		return err
	}
	signals, stopping, stop := command.Signals(ctx)
	defer stop()
	campaign, end := context.WithCancel(stopping)
	defer end()
	e.signals, e.stopping, e.endCampaign = signals, stopping, end
	if e.podLabel != "" {
		e.label, err = podlabel.New(ctx, e.podLabel, e.Getenv, cmp.Or(e.ServiceAccount, podlabel.Account), log)
		if err != nil {
			return exit.Usage(fmt.Errorf("--pod-label: %w", err))
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
	if e.result == nil && stopping.Err() != nil && len(e.argv) > 0 {
		return command.EndedBy(stopping)
	}
	return e.result
}

func (e *electCall) lead(ctx context.Context) {
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
	c, err := e.processes.Prepare(e.argv, []string{
		"NOONLOCK_ELECTION=" + e.name, "NOONLOCK_TOKEN=" + strconv.FormatUint(lease.Token(), 10),
	}, command.Streams{Stdin: e.Stdin, Stdout: e.Stdout, Stderr: e.Stderr})
	if err == nil {
		var code int
		code, err = c.Supervise(command.Watch{Context: ctx, Remaining: lease.Remaining, Grace: e.grace()}, e.signals)
		switch lost := errors.Is(err, command.ErrLost); {
		case lost && e.stopping.Err() != nil:
			err = &exit.Error{Code: exit.Lost, Err: fmt.Errorf("the leadership of %q ended while the command ran", e.name)}
		case errors.Is(err, command.ErrUnguarded): // elect ends with err
		case lost || errors.Is(context.Cause(ctx), election.ErrResigned):
			return // Run campaigns again
		default:
			err = &exit.Error{Code: code}
		}
	}
	e.mu.Lock()
	e.result = err
	e.mu.Unlock()
	e.endCampaign()
}

// labelWhileLeading sets the label of the pod, and removes it as soon as leadership ends or a signal
// stops noonctl. The returned function removes it, and waits for that.
func (e *electCall) labelWhileLeading(ctx context.Context) (removeAndWait func()) {
	e.label.Set(true)
	remove := func() { e.label.Set(false) }
	cancelLost, cancelStopping := context.AfterFunc(ctx, remove), context.AfterFunc(e.stopping, remove) //nolint:contextcheck // either context removes it
	return func() {
		cancelLost()
		cancelStopping()
		remove()
		const timeout = 2 * time.Second // the next replica waits meanwhile
		waiting, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
		defer cancel()
		e.label.Await(waiting)
	}
}

// grace returns the time from the local end of a lease to SIGKILL, which comes before another replica may lead. The
// local end is election.Config.RenewDeadline after a renewal, by default two thirds of the lease.
func (e *electCall) grace() time.Duration { return e.lease - margin(e.lease) - e.lease*2/3 }

func (e *electCall) setToken(token uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.token = token
	if token > 0 {
		close(e.leading)
	} else {
		e.leading = make(chan struct{})
	}
}

func (e *electCall) awaitLeadership(ctx context.Context, timeout time.Duration) {
	e.mu.Lock()
	leading := e.leading
	e.mu.Unlock()
	select {
	case <-leading:
	case <-time.After(timeout):
	case <-ctx.Done():
	}
}

type leadership struct {
	Election string `json:"election"`
	Leader   string `json:"leader,omitempty"` // if a leader is known
	Identity string `json:"identity"`
	Leading  bool   `json:"leading"`
	Token    uint64 `json:"token,omitempty"`
}

func (e *electCall) serve(ctx context.Context, log logr.Logger) (closeServer func(), err error) {
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
	closeServer, addr, err := listen(ctx, "http", e.http, mux)
	if err == nil {
		log.Info("answering HTTP requests", "addr", addr)
	}
	return closeServer, err
}
