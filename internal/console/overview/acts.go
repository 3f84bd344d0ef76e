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

// An Action is a change of a job or an election that an operator requests.
type Action struct {
	Verb string // one of Verbs
	Name string

	Run     singleton.RunID // rerun: zero for the last ended run; cancel: zero for all runs that have begun
	ID      string          // trigger and cancel: ID of a run at an instant
	At      time.Time       // trigger with an ID
	Payload string          // trigger with an ID
	Token   uint64          // resign: token of the leader; 0 for any leader
	To      string          // resign: next leader, instead of the first candidate
}

// Verbs are the actions, each with the kind that it changes.
var Verbs = map[string]Kind{
	"pause": Jobs, "resume": Jobs, "trigger": Jobs, "rerun": Jobs, "cancel": Jobs, "resign": Elections,
}

// Do carries out an Action for the lockcore.Operator of ctx. did describes the change.
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
	default: // rerun
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
