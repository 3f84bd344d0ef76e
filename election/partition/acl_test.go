package partition_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/noonlock/noonlock/doctor"
	"github.com/noonlock/noonlock/election/partition"
	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

// Users with exactly the documented rights share partitions. Without the right to one command, a replica is not
// ready when it starts. Its error names the right, and so does doctor.
func TestRights(t *testing.T) {
	t.Parallel()
	e := onServer(t)
	rights := testenv.Rights(t, lock.NeedsOf(partition.Set{}), false)
	as := func(who string, also ...string) *lockcore.Client {
		return e.ClientWith(e.As(who, slices.Concat(rights, also)...), lockcore.Config{Identity: who})
	}
	b := e.board(4)
	a := b.on(as("a"), "a")
	b.settles("a:4")
	must(e, doctor.CheckRights(e.Context(), as("doctor"), setName, doctor.UsePartitions))
	b.on(as("b"), "b")
	b.settles("a:2 b:2")
	must(e, a.stop())
	b.settles("b:4")
	for _, l := range e.Raw.ACLLog(e.Context(), 10).Val() {
		t.Errorf("refused: %s of %s in %s", l.Object, l.Username, l.Context)
	}
	commands := rights[slices.Index(rights, "+unsubscribe")+1:]
	for _, right := range slices.DeleteFunc(commands, func(right string) bool { return right == "+publish" }) {
		command := strings.TrimPrefix(right, "+")
		c := as("without-"+command, "-"+command)
		err := doctor.CheckRights(e.Context(), c, setName, doctor.UsePartitions)
		if err == nil || !strings.HasSuffix(err.Error(), ": "+strings.ToUpper(command)) || lockcore.IsTemporary(err) {
			t.Errorf("doctor, without %s: %v", command, err)
		}
		without := b.on(c, "c")
		e.Until("a replica without "+command+" is not ready", func() bool {
			err := without.Ready()
			return err != nil && strings.Contains(err.Error(), strings.ToUpper(command))
		})
		_ = without.stop()
	}
	b.settles("b:4")
}
