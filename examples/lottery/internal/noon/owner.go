package noon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// An Owner remembers in Redis, beside the ledger, which database has the draws. Otherwise two
// installations with one prefix and a database each would share the noons, and each would draw some.
type Owner struct {
	rdb redis.UniversalClient
	key string
}

var (
	// ErrOtherDatabase means that this database must have no draws.
	ErrOtherDatabase = errors.New("the draws are in another database")
	// ErrNotAsked means that Redis did not answer.
	ErrNotAsked = errors.New("asking Redis which database has the draws")
)

// remembered is for how long the database is known after the last replica has asked.
const remembered = 366 * 24 * time.Hour

// NewOwner opens no connection. An empty prefix is that of lockcore.Config.
func NewOwner(o redis.UniversalOptions, prefix string) *Owner {
	o.ContextTimeoutEnabled, o.MaxRetries, o.DialTimeout, o.ReadTimeout = true, -1, 2*time.Second, 2*time.Second
	return &Owner{redis.NewUniversalClient(&o), cmp.Or(prefix, "noonlock") + ":{job/" + Job + "}:record"}
}

// Close closes all connections.
func (o *Owner) Close() error { return o.rdb.Close() }

// Admit returns an error unless the database with this id has the draws. The first one that asks gets them.
func (o *Owner) Admit(ctx context.Context, id string) error {
	var known *redis.StringCmd
	_, err := o.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.SetNX(ctx, o.key, id, remembered)
		pipe.PExpire(ctx, o.key, remembered)
		known = pipe.Get(ctx, o.key)
		return nil
	})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotAsked, err)
	}
	if known.Val() != id {
		return fmt.Errorf("%w, %s, and this is %s: give each installation its own --prefix, or run lottery accept if this database replaces the other", ErrOtherDatabase, known.Val(), id)
	}
	return nil
}

// Accept makes this database the one that has the draws.
func (o *Owner) Accept(ctx context.Context, id string) error {
	return o.rdb.Set(ctx, o.key, id, remembered).Err()
}
