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
// Redis and each replica have a mark, a database with a rank, and replace it only by one of a higher rank. A
// replica that finds no mark claims: the rank is the negative of the server's time (µs), so the earliest claim
// counts, and it admits no draw before its age is settle. An operator accepts: the rank is the server's time.
//
// Each replica reads the mark every AskEvery, and writes its own if Redis has a lower one or none. So after a
// loss of data, one restores the mark before another claim admits a draw. The next claim counts if no replica
// that has the mark reaches Redis within settle, or if the clock of Redis is set back as well.
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
	// remembered is for how long Redis keeps the mark after the last replica has started.
	remembered = 366 * 24 * time.Hour
)

//go:embed lua/*.lua
var luaFiles embed.FS

// NewOrigin sends nothing. A call returns within two thirds of the lease, and within 6 s.
func NewOrigin(c *lockcore.Client, lease time.Duration) (*Origin, error) {
	name, err := lock.Of(c).Name(lock.JobNames+Job, &lock.LeaseConfig{TTL: lease})
	if err != nil {
		return nil, err
	}
	scripts := wire.NewLoader(luaFiles)
	return &Origin{name: name, script: scripts.Script("origin")}, scripts.Err()
}

// Admit returns an error unless that database has the draws.
func (o *Origin) Admit(ctx context.Context, database string) error {
	other, age, err := o.ask(ctx, database, 0)
	if err != nil {
		return fmt.Errorf("asking Redis which database has the draws: %w", err)
	}
	if other != database {
		return fmt.Errorf("%w, %s, and this is %s: give each installation its own --prefix, or run lottery accept if this database replaces the other", ErrOtherDatabase, other, database)
	}
	if 0 <= age && age < settle { // it is negative if the clock was set back
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
