package lockcore_test

import (
	"crypto/sha1"
	"fmt"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

const (
	quorumMarkerKey = "noonlock:quorum"
	quorumLockKey   = "noonlock:{orders}:lock"
	quorumTombKey   = "noonlock:{orders}:tomb:ALIVE.1"
)

func TestQuorumPlays(t *testing.T) {
	t.Parallel()
	playScripts(t, []scriptScene{
		// A request changes nothing but the lock and the greatest token.
		{"grants", "quorum", `
			member; A.1 acquires => 1 #0 R #0; lock => A.1:50000; marker =>
			member top:4000000000000000; A.1 acquires => 1 4000000000000001 R #0; lock => A.1:50000; marker => // ahead of the clock
			member; lock A.1:1000; A.1 acquires => 1 #0 R #0; lock => A.1:50000; marker =>
			member; lock B.2:2000; A.1 acquires => 4 2000 B.2; lock => B.2:2000; marker =>
			member; redis hset lock a b; A.1 acquires => 7; redis pttl lock => -1; marker =>
			member; redis set tomb 1; A.1 acquires => 6; lock =>; marker => // abandoned
			member run:f00; A.1 acquires => 8; lock =>; marker =>
			member; redis del noonlock:quorum; A.1 acquires => 8; lock =>; redis exists noonlock:quorum => 0
			member; A.1 acquires list=2/5/2/aa => 9 2/5/3/aa; lock =>; marker => // an earlier list, a later one, and other servers
			member; A.1 acquires list=2/5/4/aa => 9 2/5/3/aa; lock =>; marker =>
			member; A.1 acquires list=2/5/3/bb => 9 2/5/3/aa; lock =>; marker =>
			member; A.1 acquires list=- => 9 2/5/3/aa; lock =>; marker =>
			member after:@1; A.1 acquires => 10 1; lock =>; marker =>
			member after:@3000; A.1 acquires => 10 3000; lock =>; marker =>
			member; A.1 acquires ttl=60000 => 1 #0 R #0; lock => A.1:60000; marker =>
			member; A.1 acquires ttl=60001 => 11 60000; lock =>; marker =>
			pass 433us; member after:@1; A.1 acquires => 1 #433 R #433 // this very microsecond`},
		{"renewals", "quorum", `
			member; lock A.1:1000; A.1 renews token=8 => 1; lock => A.1:50000; marker => top=8
			member; lock A.1:1000; A.1 renews token=7 => 1; lock => A.1:50000; marker =>
			member; lock A.1:1000; A.1 renews token=6 => 1; lock => A.1:50000; marker =>
			member run:f00; lock A.1:1000; A.1 renews token=8 => 1; lock => A.1:50000; marker => top=8
			member after:@3600000; lock A.1:1000; A.1 renews token=8 => 1; lock => A.1:50000; marker => top=8
			member; lock A.1:1000; A.1 renews token=8 list=2/5/2/aa => 9 2/5/3/aa; lock => A.1:1000; marker =>
			member; A.1 renews token=8 => 1; lock => A.1:50000; marker => top=8
			member run:f00; A.1 renews token=8 => 8; lock =>; marker =>
			member after:@1000; A.1 renews token=8 => 10 1000; lock =>; marker =>
			member; A.1 renews token=8 list=2/5/2/aa => 9 2/5/3/aa; lock =>; marker =>
			member longest:49999; A.1 renews token=8 => 11 49999; lock =>; marker =>
			member; redis set tomb 1; A.1 renews token=8 => 6; lock =>; marker =>
			member; lock B.2:2000; A.1 renews token=8 => 4; lock => B.2:2000; marker =>
			member; redis hset lock a b; A.1 renews token=8 => 4; redis pttl lock => -1; marker =>
			anew; lock A.1; A.1 renews token=8 => 9 <nil>`},
		{"releases", "quorum", `
			lock A.1; B.2 leaves channel=noonlock:ch:FREED => 0; lock => A.1:60000; tomb =>; messages =>
			A.1 leaves channel=noonlock:ch:FREED => 1; lock =>; tomb =>; messages => noonlock:ch:FREED
			B.2 leaves tomb=4000 => 0; tomb => 1:4000; lock A.1; A.1 leaves => 1; lock =>; messages =>
			redis hset lock a b; A.1 leaves channel=noonlock:ch:FREED => 0; redis exists lock => 1; messages =>`},
		{"states", "quorum", `
			o states => R lost - 0 - - - - - -; redis exists noonlock:quorum => 0
			o states number=x => R lost - 0 - - x - - -; marker => return=x returned=R
			o states number=y => R lost - 0 - - x - - -; o states => R lost - 0 - - x - - -
			member; o states number=x => R member 2/5/3/aa 0 60000 7 - a a b c d e -; marker =>
			member after:@1500 former:v+w; o states number=x => R member 2/5/3/aa 1500 60000 7 - a a b c d e v+w; marker =>
			member run:f00 return:old returned:f00; o states => R lost 2/5/3/aa 0 60000 7 - a a b c d e -; marker => // an old disk
			o states number=x => R lost 2/5/3/aa 0 60000 7 x a a b c d e -
			o states number=y => R lost 2/5/3/aa 0 60000 7 x a a b c d e -`},
		{"joins", "quorum", `
			// It returns.
			member run:f00 return:n returned:R; o joins number=n longest=80000 waits=1 => 1
			marker => after=@80001 id=z longest=80000 return= returned= run=R servers=v+w+x+y+z top=9
			member run:f00 return:n returned:R; o joins number=n longest=80000 => 1 // and must not go on
			marker => after=@80001 id=z longest=80000 return= returned= run=R servers=v+w+x+y+z top=9
			member run:f00 return:n returned:R longest:80000 top:12; o joins number=n longest=70000 => 1 // and knows more
			marker => after=@80001 id=z return= returned= run=R servers=v+w+x+y+z
			member run:f00 return:n returned:R; o joins number=n list=3/7/1/00 longest=80000 => 1 // to another list
			marker => after=@80001 former=a+b+c+d+e id=z list=3/7/1/00 longest=80000 return= returned= run=R servers=v+w+x+y+z top=9
			member run:f00 return:n returned:R; o joins number=earlier longest=80000 => 0; marker => // a late request
			member run:f00 return:n returned:f00; o joins number=n longest=80000 => 0; marker => // of another run
			member run:f00 return:n returned:R; o joins number=n had=2/5/2/aa list=2/5/4/aa longest=80000 => 0; marker =>
			member run:f00 return:n returned:R; o joins number=n had=- list=2/5/4/aa longest=80000 => 0; marker =>
			// A member goes on, or waits.
			member; o joins had=2/5/2/aa longest=80000 waits=1 => 1; marker => longest=80000 servers=v+w+x+y+z // a longer TTL
			member; o joins list=2/5/4/00 longest=50000 => 1; marker => former=a+b+c+d+e list=2/5/4/00 servers=v+w+x+y+z
			member; o joins list=3/5/1/00 longest=80000 waits=1 => 1
			marker => after=@80001 former=a+b+c+d+e id=z list=3/5/1/00 longest=80000 servers=v+w+x+y+z top=9
			member; o joins had=2/5/2/aa list=2/5/4/aa longest=80000 => 0; marker => // another list than before
			// It is empty.
			anew; o joins had=- list=1/3/1/aa longest=80000 waits=1 => 0
			o states number=n; o joins number=n had=- list=1/3/1/aa longest=80000 waits=1 => 1
			marker => after=@80001 id=z list=1/3/1/aa longest=80000 run=R servers=v+w+x+y+z top=9`},
	})
}

// A user without the right to publish releases all the same, and ends its record. One who may not write the record
// releases, too.
func TestQuorumLeaveUnderACL(t *testing.T) {
	t.Parallel()
	e := testenv.OnServer(t)
	const record = "noonlock:{orders}:leader"
	keys := []string{quorumLockKey, quorumTombKey, record}
	leave := testenv.Scripts{Files: lockcore.ScriptFiles()}.Source(t, "quorum_leave")
	for rule, ends := range map[string]bool{"-publish": true, "-hset": false} {
		must(t, e.Raw.FlushDB(e.Context()).Err())
		must(t, e.Raw.Set(e.Context(), quorumLockKey, "me", time.Minute).Err())
		must(t, e.Raw.HSet(e.Context(), record, "by", fmt.Sprintf("%x", sha1.Sum([]byte("me"))), "v", 1).Err()) //nolint:gosec // as in the script
		got, err := e.Narrowed("user"+rule, keys, rule).Eval(e.Context(), leave, keys, "me", "1000", "woken", "news").Result()
		if err != nil || got != int64(1) {
			t.Errorf("with %s: %v, %v", rule, got, err)
		}
		if !e.Exists(quorumTombKey) || e.Exists(quorumLockKey) {
			t.Errorf("with %s, the lock is not released, or there is no tombstone", rule)
		}
		equal(t, "the end is in the record, with "+rule, e.Raw.HExists(e.Context(), record, "released").Val(), ends)
	}
}
