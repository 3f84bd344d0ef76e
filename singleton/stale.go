package singleton

import (
	"context"
	"errors"

	"github.com/go-logr/logr"

	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

// tokenSeen is the token that a resource says it has seen, where the work's error says
// so; 0: it does not.
func tokenSeen(err error) uint64 {
	var tells interface{ TokenSeen() uint64 }
	if errors.As(err, &tells) {
		return tells.TokenSeen()
	}
	return 0
}

// raise gives a run that is held a token above the one that its resource has seen. It
// does so once for each run: a resource that refuses the new token as well serves two
// servers with one fence, and their runs must not race each other upwards.
func raise(ctx context.Context, run *ledger.Claim, log logr.Logger, seen uint64) (raised bool) {
	refused := run.Token()
	switch err := run.Raise(ctx, seen); {
	case err == nil:
		log.Error(errTokenBehind, "token raised above the one that the resource has seen",
			"attempt", run.Attempt, "refused", refused, "seen", seen, "token", run.Token())
		return true
	case errors.Is(err, ledger.ErrSuperseded):
		return false // the refusal was right: another has the run
	default:
		log.Error(err, "token not raised above the one that the resource has seen",
			"attempt", run.Attempt, "refused", refused, "seen", seen)
		return false
	}
}

// errTokenBehind is what an operator reads: nothing else tells that a clock was ahead.
var errTokenBehind = errors.New("singleton: the resource has seen a greater token, although nobody else holds the run: " +
	"the server's clock was ahead, or its data was lost")
