package noon

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/lockcore"
)

// An Origin keeps in Redis, beside the ledger, which database has the draws. Otherwise two
// installations with one prefix and a database each would share the noons, and each would draw some.
//
// Redis and each replica have a mark: a database and its rank. Only a mark of a higher rank replaces a mark. A
// replica that finds no mark claims. The rank of a claim is the negative of the server's time (µs), so the earliest
// claim counts. A claim admits no draw before its age is settle. Accept writes the server's time as the rank.
//
// Each replica reads the mark every AskEvery, and writes its own mark if Redis has a lower mark or none. So after
// a loss of data, a replica restores the mark before a new claim admits a draw. A new claim counts only if no
// replica with the mark reaches Redis within settle, or if the clock of Redis is set back as well.
type Origin struct {
	name   *lock.Name
	script *wire.Script
	known  atomic.Value // text of the newest mark that was read
}

// ErrOtherDatabase means that this database must have no draws.
var ErrOtherDatabase = errors.New("the draws are in another database")

const (
	// AskEvery is the time between two calls of Admit by a replica.
	AskEvery = 500 * time.Millisecond
	// settle is longer than AskEvery and the 2 s within which a replica connects to a server that is back.
	settle = 3 * time.Second
	// remembered is how long Redis keeps the mark after the last start of a replica.
	remembered = 366 * 24 * time.Hour
)

//go:embed lua/*.lua
var luaFiles embed.FS

// NewOrigin sends nothing. Calls of the Origin return within two thirds of the lease, and within 6 s.
func NewOrigin(c *lockcore.Client, lease time.Duration) (*Origin, error) {
	name, err := lock.Of(c).Name(lock.JobNames+Job, &lock.LeaseConfig{TTL: lease})
	if err != nil {
		return nil, err
	}
	scripts := wire.NewLoader(luaFiles)
	return &Origin{name: name, script: scripts.Script("origin")}, scripts.Err()
}

// Admit returns an error if another database has the draws, or if a claim of this one has not settled.
func (o *Origin) Admit(ctx context.Context, database string) error {
	other, age, err := o.ask(ctx, database, 0)
	if err != nil {
		return fmt.Errorf("asking Redis which database has the draws: %w", err)
	}
	if other != database {
		return fmt.Errorf("%w, %s, and this is %s: give each installation its own --prefix, or run lottery accept if this database replaces the other", ErrOtherDatabase, other, database)
	}
	if 0 <= age && age < settle { // a negative age shows that the clock was set back, and does not delay
		return fmt.Errorf("no database had the draws; waiting %s for replicas of one that had", settle)
	}
	return nil
}

// Accept records that the draws are in this database.
func (o *Origin) Accept(ctx context.Context, database string) error {
	_, _, err := o.ask(ctx, database, 1)
	return err
}

// ask returns the database of the mark that counts, and its age.
func (o *Origin) ask(ctx context.Context, mine string, accept int) (database string, age time.Duration, err error) {
	known, _ := o.known.Load().(string)
	request := o.script.Call(wire.Keys(o.name.Key("record")), known, mine, accept, remembered.Milliseconds())
	answer, err := o.name.Ask(ctx, request)
	if err != nil {
		return "", 0, err
	}
	list, _ := answer.([]any)
	if len(list) != 2 {
		return "", 0, request.OddReply(answer)
	}
	us, _ := list[1].(int64)
	known = wire.Text(list[0])
	o.known.Store(known)
	_, database, _ = strings.Cut(known, " ")
	return database, time.Duration(us) * time.Microsecond, nil
}
