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
// Redis and each replica have a mark, a database with a rank. A mark is replaced only by one of a higher rank:
//
//	claimed   by a replica, if Redis has no mark and the replica knows none. The rank is the negative of the
//	          server's time (µs), so the earliest claim counts. A claim admits no draw before its age is settle.
//	accepted  by an operator. The rank is the server's time, so the newest one counts, and more than any claim.
//
// Each replica reads the mark every askEvery, and writes its own if Redis has a lower one or none. So if Redis
// loses its data, a replica restores the mark before another claim admits a draw, whether the mark names the
// database of the replica or refused it. A request that is lost, late or repeated changes nothing, nor does the death
// of a replica, as long as another one has the mark. If none has it, the next claim counts. The same is possible
// if no replica reaches Redis within settle of the loss, or if the clock of Redis is set back as well.
type Origin struct {
	name   *lock.Name
	script *wire.Script

	known    atomic.Value // text of the newest mark that was read
	database atomic.Value // name of the newest Admit's database
}

// ErrOtherDatabase means that this database must have no draws.
var ErrOtherDatabase = errors.New("the draws are in another database")

const (
	askEvery = 500 * time.Millisecond
	// settle is longer than askEvery and the 2 s within which a replica connects to a server that is back.
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
	o.database.Store(database)
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

// Keep calls admit with the database of the newest Admit every askEvery, until ctx ends.
func (o *Origin) Keep(ctx context.Context, admit func(ctx context.Context, database string) error) {
	for again := time.Tick(askEvery); ctx.Err() == nil; {
		select {
		case <-again:
			_ = admit(ctx, o.database.Load().(string))
		case <-ctx.Done():
		}
	}
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
