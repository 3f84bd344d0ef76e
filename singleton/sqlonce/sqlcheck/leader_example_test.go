package sqlcheck_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/redis/go-redis/v9"
	_ "modernc.org/sqlite"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton/sqlonce"
)

// A leader writes with its token. After another replica has become the leader and has
// written, the database refuses later writes of the first one, which may have been frozen.
func Example_leader() {
	ctx := context.Background()
	server, err := lockcoretest.StartRedis() // in production: your Redis
	if err != nil {
		panic(err)
	}
	defer server.Close()
	folder, err := os.MkdirTemp("", "leader-")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(folder, "prices.db"))
	if err != nil {
		panic(err)
	}
	defer db.Close()
	fences, err := sqlonce.New(db, sqlonce.SQLite, sqlonce.Config{})
	if err == nil {
		err = fences.CreateTables(ctx)
	}
	if err == nil {
		_, err = db.ExecContext(ctx, "CREATE TABLE prices (price INT); INSERT INTO prices VALUES (100)")
	}
	if err != nil {
		panic(err)
	}

	setPrice := func(ctx context.Context, token uint64, price int) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback() //nolint:errcheck // after Commit it has nothing to do
		if err := fences.Admit(ctx, tx, "election/prices", token); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "UPDATE prices SET price = ?", price); err != nil {
			return err
		}
		return tx.Commit()
	}
	lead := func(identity string, price int) (token uint64) {
		rdb := redis.NewClient(server.Options())
		defer rdb.Close()
		client, err := lockcore.New(rdb, lockcore.Config{Identity: identity})
		if err != nil {
			panic(err)
		}
		defer client.Close(ctx)
		ctx, resign := context.WithCancel(ctx)
		defer resign()
		le, err := election.NewLeaderElector(client, "prices", election.Callbacks{
			OnStartedLeading: func(ctx context.Context) {
				token = lockcore.FromContext(ctx).Token()
				fmt.Println(identity, "sets the price:", setPrice(ctx, token, price))
				resign()
			},
			OnStoppedLeading: func() {},
		}, election.Config{})
		if err != nil {
			panic(err)
		}
		if err := le.Run(ctx); err != nil {
			panic(err)
		}
		return token
	}

	first := lead("replica-a", 110)
	lead("replica-b", 120)
	err = setPrice(ctx, first, 130)
	fmt.Println("replica-a is refused:", errors.Is(err, sqlonce.ErrStaleToken))
	var price int
	if err := db.QueryRowContext(ctx, "SELECT price FROM prices").Scan(&price); err != nil {
		panic(err)
	}
	fmt.Println("the price is", price)

	// Output:
	// replica-a sets the price: <nil>
	// replica-b sets the price: <nil>
	// replica-a is refused: true
	// the price is 120
}
