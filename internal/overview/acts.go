package overview

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// An Action is what an operator wants to be done to a job or an election.
type Action struct {
	Verb    string          // of Verbs
	Name    string          // of the job or the election
	Run     singleton.RunID // of rerun and cancel; zero: the run that ended last, and all runs that are running
	Token   uint64          // of resign: of the leader; 0: any leader
	ID      string          // of trigger and cancel: of a run at an instant; empty: none
	At      time.Time       // of trigger with an ID
	Payload string
	To      string // of resign: the candidate that leads next; empty: the first one
}

// Verbs are the actions, with the kinds of things that they change.
var Verbs = map[string]Kind{
	"pause": Jobs, "resume": Jobs, "trigger": Jobs, "rerun": Jobs, "cancel": Jobs, "resign": Elections,
}

// Do carries out an Action for the lockcore.Operator of ctx, and says what it has done.
func (a Action) Do(ctx context.Context, client *lockcore.Client) (did string, err error) {
	if Verbs[a.Verb] == Elections {
		return a.resign(ctx, client)
	}
	j, err := singleton.NewJob(client, a.Name)
	if err != nil {
		return "", err
	}
	switch a.Verb {
	case "pause":
		return "paused", j.Pause(ctx)
	case "resume":
		return "resumed", j.Resume(ctx)
	case "trigger":
		if a.ID != "" {
			_, err := j.TriggerAt(ctx, a.ID, a.At, a.Payload)
			return "triggered: " + a.ID + " at " + singleton.RunID{Tick: a.At}.Name(), err
		}
		run, err := j.Trigger(ctx)
		return "triggered: " + run.Name(), err
	case "cancel":
		if a.ID != "" {
			return "canceled: " + a.ID, j.CancelAt(ctx, a.ID)
		}
		runs, err := j.Cancel(ctx, a.Run)
		var names []string
		for _, run := range runs {
			names = append(names, run.Name())
		}
		return "canceled: " + strings.Join(names, ", "), err
	default:
		if a.Run.Tick.IsZero() {
			runs, err := j.Runs(ctx, 100)
			i := slices.IndexFunc(runs, func(r singleton.HistoryEntry) bool { return r.Outcome != singleton.OutcomeSkipped })
			if i < 0 {
				return "", cmp.Or(err, singleton.ErrNoRun)
			}
			a.Run = runs[i].RunID
		}
		return a.Run.Name() + " runs again", j.Rerun(ctx, a.Run)
	}
}

func (a Action) resign(ctx context.Context, client *lockcore.Client) (did string, err error) {
	e, err := election.NewElection(client, a.Name)
	if err != nil {
		return "", err
	}
	if a.To != "" {
		r, err := e.TransferTo(ctx, a.Token, a.To)
		return r.Holder + " was asked to transfer to " + a.To, err
	}
	r, err := e.Resign(ctx, a.Token)
	return r.Holder + " was asked to resign", err
}
