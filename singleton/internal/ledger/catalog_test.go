package ledger_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

// Of stored jobs, the greatest revision acts, and a deletion is one. Late replicas revive nothing.
func TestStoredDefinitions(t *testing.T) {
	playAll(t, []scenario{
		{"a greater revision acts at once", true, `
			one is def=2@10; two is def=1@20
			one looks => acts=true; pass 1m; one looks => acts=true; one watches
			two looks => acts=true acting=1@20; one hears => change change
			one claims 1 => acts-no-more; one skips 1 missed => acts-no-more
			one looks => acts=false; one looks => acts=false others=0 replicas=0; pass 1m; two looks => acts=true; two runs 1
			pass 91s; one looks => acts=false; two looks => acts=true others=0 replicas=1
			code is def=c; code looks => acts=false; pass 5s; code looks => acts=true`},
		{"it is defined before a replica runs it", true, `
			one is def=1@10 schedule=s1; two is def=2@20 schedule=s2; code is def=c
			one defines; one asks => acting=1@10 schedule=s1 replicas=0 last=60 begun=60; ttl job => 0s
			two defines; two defines; one defines; one asks => acting=2@20 schedule=s2 replicas=0 rescheduled=-
			history => 60.001-60.001:skipped:rescheduled
			two looks => acts=true; ttl runs => 0s; two pauses; two resumes; ttl job => 0s; ttl acts => 0s; two leaves
			code looks => acts=true; two defines; code looks => acts=true; ttl job => 720h0m0s
			pass 1s; young is def=2@20; young looks; pass 6s; two defines; code looks => acts=true
			code leaves; two defines; two asks => acting=2@20; two looks => acts=true`},
		{"deleted", true, `
			one is def=1@10 because=r; late is def=1@10; again is def=1@30; op is def=1@10
			one looks; late looks; one claims 1; one watches; redis hset job next @5
			op deletes 20 too old => left=9.98s; one hears => change change; op deletes 20 => left=9.96s; op deletes 15 => left=9.96s; one hears =>
			history => 1.001-60.02:skipped:removed; acts => delete::ann@host:too_old@60.02; ttl job => 168h0m0s; ttl runs => 168h0m0s
			one asks => removed=true replicas=0 next=- resumed=- 1.by=cancel:ann@host:the_job_was_deleted:_too_old
			one notices 1 => canceled=ann@host:the_job_was_deleted:_too_old held=true
			late claims 2 => no-ledger; late skips 2 missed => no-ledger; late triggers z => no-ledger; late pauses => no-ledger; late looks => acts=false replicas=0
			one completes 1 failed canceled; op deletes 20 => left=0s; op deletes 15 => left=0s
			history 1 => 1:failed:canceled; one asks => removed=true; ttl job => 168h0m0s; late looks => acts=false; ttl job => 168h0m0s
			again looks => acts=true !last=60.02 open= removed=false; ttl job => 0s; ttl open => 0s; ttl runs => 0s
			late looks => acts=false; late claims 2 => acts-no-more; op deletes 20 => left=0s; again looks => acts=true count=0
			late becomes def=1@40; late looks => acts=true !last=1
			late deletes 50 => left=0s; code is def=c; code looks => acts=true removed=false; ttl job => 720h0m0s`},
		{"open runs", true, `
			one is def=1@10 ttl=2s dead overlap; two is def=1@10 overlap; two looks; two triggers z; two triggers y; two claims y; two abandons y; one claims 1
			two deletes 20 => left=2s; history => y:unknown:removed_its_holder_died_or_released_it z-60*1:skipped:removed 1.001-60:skipped:removed
			pass 1s; two deletes 20 => left=1s; pass 1s; two deletes 20 => left=0s
			history 1 => 1:unknown:removed_its_holder_died_or_released_it; two asks => count=0`},
		{"runs at instants", true, `
			one is def=1@10; again is def=1@30 keeps=1; one looks; one plans w 0 o; one looks; one plans x 100 p; one plans y 200 q
			one deletes 20 => left=0s; history 3 => w-60*1:skipped:removed 100-200*2:skipped:removed 0.001-60:skipped:removed; keys due =>; keys payloads =>
			pass 5m; again looks => acts=true count=0 coming=0; again plans x 400 r; again looks => coming=0`},
		{"a ledger that was lost", true, `
			one is def=1@10; two is def=2@20; op is def=2@20; code is def=c
			op deletes 15 => left=0s; op asks => removed=true; one looks => acts=false; keys job => noonlock:{job/draw}:job; two looks => acts=true
			flush; one looks => acts=true; two looks => acts=true; one looks => acts=false; one claims 1 => acts-no-more
			anew; code looks; op deletes 30 => left=0s; code looks => acts=true removed=false`},
		{"another version defines a revision", true, `
			one is def=1@10; two is def=2@10; one looks; two looks => acts=false; two defines => revision=10; one looks => acts=true`},
		{"a pause ends with the job", true, `
			one is def=1@10; two is def=1@10; op is def=1@10
			one looks; op pauses; one looks => paused=true; ttl job => 0s; op deletes 20; ttl job => 168h0m0s
			one becomes def=1@30; one looks => paused=false acts=true; two looks => paused=false
			history => 60.001-60.001:skipped:removed 0.001-60:skipped:removed`},
		{"a newer schema", true, `
			op is def=1@10; redis hset job v 3 last @5; op deletes 20 => newer-schema; redis hexists job def => 0
			redis hset job v 2; op deletes 20; redis hget job v => 2`},
		{"after the clock was set back", true, `
			one is def=1@10; one looks; one runs 59; clock -1h; one deletes 20; history 1 => 59.001-59.001:skipped:removed`},
	})
}

const keySpecs, keyLive, keyGone = "{job/}specs", "{job/}live", "{job/}gone"

// A catalogBench runs the scripts of the catalog directly.
type catalogBench struct{ *env }

func (b *catalogBench) run(script string, args ...any) string {
	b.Helper()
	sha := b.Raw.ScriptLoad(b.Context(), scripts().Source(b.env, script)).Val()
	answer, err := b.Raw.EvalSha(b.Context(), sha, []string{keySpecs, keyLive, keyGone}, args...).Result()
	if err != nil {
		return err.Error()
	}
	return strings.Trim(fmt.Sprint(answer), "[]")
}

// picture returns all of the catalog.
func (b *catalogBench) picture() string {
	ctx := b.Context()
	return fmt.Sprint(b.Raw.HGetAll(ctx, keySpecs).Val(), b.Raw.ZRangeWithScores(ctx, keyLive, 0, -1).Val(), b.Raw.ZRangeWithScores(ctx, keyGone, 0, -1).Val())
}

// Each change is made twice in each state of a job. A revision is greater than all before, also after the clock was set back.
func TestCatalogScriptsTwiceInEveryState(t *testing.T) {
	onBoth(t, func(e *env) {
		b := &catalogBench{e}
		const ahead = 9_000_000_000_000_001 // of the clock
		for state, set := range map[string]func(p redis.Pipeliner){
			"none": func(redis.Pipeliner) {},
			"live": func(p redis.Pipeliner) {
				p.HSet(e.Context(), keySpecs, "x", "t")
				p.ZAdd(e.Context(), keyLive, redis.Z{Score: ahead, Member: "x"})
			},
			"deleted": func(p redis.Pipeliner) {
				p.HSet(e.Context(), keySpecs, "x", "by")
				p.ZAdd(e.Context(), keyGone, redis.Z{Score: ahead, Member: "x"})
			},
			"lost":            func(p redis.Pipeliner) { p.ZAdd(e.Context(), keyLive, redis.Z{Score: ahead, Member: "x"}) },
			"a lost deletion": func(p redis.Pipeliner) { p.ZAdd(e.Context(), keyGone, redis.Z{Score: ahead, Member: "x"}) },
		} {
			const same, next, later = "9000000000000001", "9000000000000002", "9000000000000003"
			for request, want := range map[string]map[string]string{ // by state, the first and the second answer
				"t create 0":       {"none": "1 ? t, 2 ? t", "live": "2 " + same + " t", "deleted": "4 " + same + " by", "lost": "3", "a lost deletion": "4 " + same + " {}"},
				"u create 0":       {"none": "1 ? u, 2 ? u", "live": "3", "deleted": "4 " + same + " by", "lost": "3", "a lost deletion": "4 " + same + " {}"},
				"u replace 0":      {"none": "1 ? u, 2 ? u", "live": "1 " + next + " u, 2 " + next + " u", "deleted": "4 " + same + " by", "lost": "1 " + next + " u, 2 " + next + " u", "a lost deletion": "4 " + same + " {}"},
				"u create " + same: {"none": "1 " + next + " u, 2 " + next + " u", "live": "3", "deleted": "1 " + next + " u, 2 " + next + " u", "lost": "3", "a lost deletion": "1 " + next + " u, 2 " + next + " u"},
				"me delete 0":      {"none": "5", "live": "1 " + next + " me, 2 " + next + " me", "deleted": "2 " + same + " by", "lost": "1 " + next + " me, 2 " + next + " me", "a lost deletion": "2 " + same + " {}"},
				"t renew " + same:  {"none": "3", "live": "2 " + same + " t", "deleted": "3", "lost": "3", "a lost deletion": "3"},
				"u renew " + same:  {"none": "3", "live": "3", "deleted": "3", "lost": "3", "a lost deletion": "3"},
				"t renew " + next:  {"none": "3", "live": "1 " + later + " t, 2 " + later + " t", "deleted": "3", "lost": "3", "a lost deletion": "3"},
				"t create " + next: {"none": "1 " + later + " t, 2 " + later + " t", "live": "1 " + later + " t, 2 " + later + " t", "deleted": "1 " + later + " t, 2 " + later + " t", "lost": "3", "a lost deletion": "1 " + later + " t, 2 " + later + " t"},
			} {
				e.Raw.FlushAll(e.Context())
				_, err := e.Raw.Pipelined(e.Context(), func(p redis.Pipeliner) error { set(p); return nil })
				testenv.Must(e, err)
				words := strings.Fields(request)
				args := []any{"x", words[0], words[1], words[2], 2, "channel"}
				before := b.picture()
				begun := e.Raw.Time(e.Context()).Val()
				one := b.run("catalog_change", args...)
				middle := b.picture()
				two := b.run("catalog_change", args...)
				after := b.picture()
				if strings.Contains(want[state], "?") { // the clock
					revision := strings.Fields(one)[1]
					us, _ := strconv.ParseInt(revision, 10, 64)
					if now := e.Raw.Time(e.Context()).Val().UnixMicro(); us > now || us < begun.UnixMicro() {
						t.Errorf("the revision is %d at %d", us, now)
					}
					one, two = strings.Replace(one, revision, "?", 1), strings.Replace(two, revision, "?", 1)
				}
				first, second, changes := strings.Cut(want[state], ", ")
				if !changes {
					second = first
				}
				if one != first || two != second || middle != after || (before != middle) != changes {
					t.Errorf("%s, %s: %s, then %s, want %s; %s to %s to %s", state, request, one, two, want[state], before, middle, after)
				}
			}
		}
	})
}

// A look returns what has changed, in pages. Of the deletions, the newest are kept, and the revision of the newest one that was
// dropped.
func TestCatalogLooks(t *testing.T) {
	onBoth(t, func(e *env) {
		b := &catalogBench{e}
		e.Raw.ZAdd(e.Context(), keyLive, redis.Z{Score: 9_000_000_000_000_010, Member: "lost"}) // its text is
		if got := b.run("catalog_look", 1, 5); got != "9000000000000010 9000000000000010 0 0" {
			t.Errorf("a text was lost: %s", got)
		}
		var sizes []string // how many deletions and texts there are
		for i, change := range strings.Fields("a:create b:create c:create a:delete b:delete c:delete d:create d:delete e:create e:delete a:create f:create") {
			name, what, _ := strings.Cut(change, ":")
			b.run("catalog_change", name, what+strconv.Itoa(i), what, 0, 2, "channel")
			sizes = append(sizes, fmt.Sprint(e.Raw.ZCard(e.Context(), keyGone).Val(), e.Raw.HLen(e.Context(), keySpecs).Val()))
		}
		if got := strings.Join(sizes, ","); got != "0 1,0 2,0 3,1 3,2 3,3 3,3 4,3 2,3 3,3 2,3 3,3 4" {
			t.Errorf("deletions and texts: %s", got)
		}
		for known, want := range map[string]string{
			"0":                "9000000000000022 9000000000000022 9000000000000016 2 a 9000000000000021 create10 f 9000000000000022 create11 d 9000000000000018 delete7 e 9000000000000020 delete9",
			"9000000000000020": "9000000000000022 9000000000000022 9000000000000016 2 a 9000000000000021 create10 f 9000000000000022 create11",
			"9000000000000022": "9000000000000022 9000000000000022 9000000000000016 0",
		} {
			if got := b.run("catalog_look", known, 5); got != want {
				t.Errorf("from %s: %s, want %s", known, got, want)
			}
		}
		if got := b.run("catalog_look", 1, 1); got != "9000000000000022 9000000000000010 9000000000000016 0" {
			t.Errorf("a page without a text: %s", got)
		}
		e.Raw.Del(e.Context(), keyLive)
		if got := b.run("catalog_look", "9000000000000016", 1); got != "9000000000000020 9000000000000018 9000000000000016 0 d 9000000000000018 delete7" {
			t.Errorf("a page of deletions: %s", got)
		}
		for _, key := range []string{keySpecs, keyLive, keyGone} { // of another program
			e.Raw.FlushAll(e.Context())
			e.Raw.Set(e.Context(), key, "x", 0)
			if got := b.run("catalog_change", "a", "t", "create", 0, 2, "channel"); !strings.Contains(got, "WRONGTYPE") || len(e.Raw.Keys(e.Context(), "*").Val()) != 1 {
				t.Errorf("%s is of another type: %s, keys %v", key, got, e.Raw.Keys(e.Context(), "*").Val())
			}
		}
	})
}

// Two Clients change jobs, and the catalog is read in pages. A deletion reaches the ledger before the job is stored again.
func TestCatalog(t *testing.T) {
	onBoth(t, func(e *env) {
		ctx := e.Context()
		catalog, err := ledger.NewCatalog(e.Client("a"))
		testenv.Must(e, err)
		change := func(name, what, text string) ledger.Stored {
			t.Helper()
			l, err := ledger.New(e.Client("b"), name, ledger.Config{})
			testenv.Must(e, err)
			s, err := catalog.Change(ctx, l, what, text, 0)
			testenv.Must(e, err)
			return s
		}
		for i := range 1200 {
			e.Raw.HSet(ctx, e.key("job/", "specs"), "job"+strconv.Itoa(i), "t")
			e.Raw.ZAdd(ctx, e.key("job/", "live"), redis.Z{Score: float64(i + 1), Member: "job" + strconv.Itoa(i)})
		}
		author, _ := json.Marshal(ledger.Act{Who: "ann", Why: "why"})
		first := change("x", ledger.ChangeCreate, "t")
		gone := change("x", ledger.ChangeDelete, string(author))
		e.Raw.Del(ctx, e.key("job/x", "job")) // as if the process had died before it told the ledger
		again := change("x", ledger.ChangeCreate, "t")
		if def := e.Raw.HGet(ctx, e.key("job/x", "job"), "def").Val(); def != fmt.Sprint("removed@", gone.Revision) || first.Revision >= gone.Revision || gone.Revision >= again.Revision {
			t.Errorf("the ledger has %s; the revisions are %d, %d, %d", def, first.Revision, gone.Revision, again.Revision)
		}
		change("y", ledger.ChangeCreate, "t")
		last := change("y", ledger.ChangeDelete, string(author))
		var names []string
		for known := uint64(0); ; {
			p, err := catalog.Look(ctx, known)
			testenv.Must(e, err)
			for _, one := range append(p.Live, p.Gone...) {
				names = append(names, one.Name)
			}
			if known = p.UpTo; known == p.Newest {
				break
			}
		}
		slices.Sort(names)
		if n := len(slices.Compact(names)); n != 1202 || last.Revision <= again.Revision {
			t.Errorf("%d names", n)
		}
	})
}
