package partition

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
)

const shares = "noonlock:parts:0:shards"

func key(part string) string { return "noonlock:{election/shards}:" + part }

func lua() testenv.Scripts { return testenv.Scripts{Files: ScriptFiles} }

// The header of the script declares its arguments, and it uses exactly those.
func TestScriptsDeclareWhatTheyUse(t *testing.T) {
	t.Parallel()
	lua().CheckHeaders(t)
}

// The script stores and answers these times and numbers, to the millisecond.
func TestPartitionsToTheMillisecond(t *testing.T) {
	lua().ToTheMillisecond(t, func(e *testenv.Timed) {
		heard := e.Raw.Subscribe(e.Context(), shares)
		defer heard.Close()
		_, err := heard.Receive(e.Context())
		testenv.Must(e, err)
		us := func(more int64) string { return strconv.FormatInt(e.Now.UnixMicro()+more, 10) }
		share := func(me, mode string, ttl int, known, returned string) string {
			return e.Run("parts_share", []string{key("parts"), key("fence"), key("tomb:" + me)}, me, mode, ttl, 3, known, returned, shares)
		}
		wants := func(where, told string, want ...any) {
			e.Helper()
			got := map[string]string{}
			for _, z := range e.Raw.ZRangeWithScores(e.Context(), key("parts"), 0, -1).Val() {
				got[fmt.Sprint(z.Member)] = fmt.Sprintf("%.0f", z.Score)
			}
			all := map[string]string{}
			for i := 0; i < len(want); i += 2 {
				all[fmt.Sprint(want[i])] = fmt.Sprint(want[i+1])
			}
			if !maps.Equal(got, all) {
				e.Errorf("%s: %v, want %v", where, got, all)
			}
			testenv.Equal(e, where+": told", fmt.Sprint(e.Received(heard, shares)), told)
		}
		testenv.Equal(e, "join", share("a", "join", 9000, "0", ""), "[1 "+us(0)+"]")
		wants("a joins", "[]", 0, 0, 1, 0, 2, 0, "ma", "-"+us(0), "e"+us(0), e.MS(9*time.Second), "c"+us(0), 10000)
		testenv.Equal(e, "TTL", e.PTTL(key("parts")).Round(10*time.Millisecond).String(), "9s")
		testenv.Equal(e, "renewal", share("a", "renew", 9000, us(0), ""), "2")
		testenv.Equal(e, "a call", share("a", "sync", 9000, us(0), ""), fmt.Sprintf("[1 %[1]s -1 0 0 %[1]s 1 %[1]s 2 %[1]s]", us(1)))
		testenv.Equal(e, "its repeat", share("a", "sync", 9000, us(0), ""), fmt.Sprintf("[2 %[1]s -1 0 0 %[1]s 1 %[1]s 2 %[1]s]", us(1)))
		testenv.Equal(e, "the next one", share("a", "sync", 9000, us(1), ""), "[1 "+us(1)+" -1 0]")
		testenv.Equal(e, "renewal of all", share("a", "renew", 9000, us(1), ""), "1")
		testenv.Equal(e, "renewal with an older version", share("a", "renew", 9000, us(0), ""), "2")
		testenv.Equal(e, "another n", e.Run("parts_share", []string{key("parts"), key("fence"), key("tomb:b")}, "b", "join", 9000, 4, 0, "", shares), "[-1 3]")
		e.Pass(time.Second)
		testenv.Equal(e, "b joins", share("b", "join", 7000, "0", ""), "[1 "+us(1000000)+"]")
		wants("b joins", "["+shares+"  "+us(0)+" ]", 0, us(0), 1, us(0), 2, us(0), "t0", "-"+us(1), "t1", "-"+us(1), "t2", "-"+us(1),
			"v"+us(0), "-"+us(1), "ma", "-"+us(0), "e"+us(0), e.MS(9*time.Second), "c"+us(0), 10003,
			"mb", "-"+us(1000000), "e"+us(1000000), e.MS(8*time.Second), "c"+us(1000000), 10000)
		testenv.Equal(e, "the TTL stays", e.PTTL(key("parts")).Round(10*time.Millisecond).String(), "8s")
		testenv.Equal(e, "a is to give back one", share("a", "sync", 9000, us(1), ""), "[1 "+us(1)+" 7000 1]")
		testenv.Equal(e, "another token", share("a", "sync", 9000, us(1), "2:17"), "[1 "+us(1)+" 7000 1]")
		testenv.Equal(e, "another version", share("a", "sync", 9000, us(2), ""), fmt.Sprintf("[2 %[1]s 7000 1 0 %[1]s 1 %[1]s 2 %[1]s]", us(1)))
		testenv.Equal(e, "it gives it back", share("a", "sync", 9000, us(1), "2:"+us(1)), "[1 "+us(1000001)+" 7000 0]")
		wants("it gives it back", "["+shares+"  "+us(1000000)+" ]", 0, us(0), 1, us(0), 2, 0, "t0", "-"+us(1), "t1", "-"+us(1), "t2", "-"+us(1),
			"v"+us(0), "-"+us(1000001), "ma", "-"+us(0), "e"+us(0), e.MS(10*time.Second), "c"+us(0), 10002,
			"mb", "-"+us(1000000), "e"+us(1000000), e.MS(8*time.Second), "c"+us(1000000), 10000)
		testenv.Equal(e, "b only gives", share("b", "give", 7000, us(1000000), ""), "[1 "+us(1000000)+" 9000 0]")
		testenv.Equal(e, "b takes it", share("b", "sync", 7000, us(1000000), ""), fmt.Sprintf("[1 %[1]s 9000 0 2 %[1]s]", us(1000002)))
		testenv.Equal(e, "the TTL is that of the longest lease", e.PTTL(key("parts")).Round(10*time.Millisecond).String(), "9s")
		testenv.Equal(e, "a leaves", share("a", "leave", 9000, us(1000001), ""), "[1 "+us(1000001)+" 7000 2]")
		testenv.Equal(e, "a renewal of a leaver", share("a", "renew", 9000, us(1000001), ""), "2")
		wants("a leaves", "[]", 0, us(0), 1, us(0), 2, us(1000000), "t0", "-"+us(1), "t1", "-"+us(1), "t2", "-"+us(1000002),
			"v"+us(0), "-"+us(1000001), "v"+us(1000000), "-"+us(1000002),
			"ma", "-"+us(0), "e"+us(0), e.MS(10*time.Second), "d"+us(0), 20002,
			"mb", "-"+us(1000000), "e"+us(1000000), e.MS(8*time.Second), "c"+us(1000000), 10001)
		e.Pass(7 * time.Second)
		testenv.Equal(e, "at its end", share("b", "renew", 7000, us(1000002), ""), "1")
		e.Pass(2*time.Second + time.Millisecond)
		testenv.Equal(e, "after the end of a", share("a", "sync", 9000, us(1000001), ""), "[0]")
		testenv.Equal(e, "a renewal after it", share("a", "renew", 9000, us(1000001), ""), "0")
		wants("after the end of a", "["+shares+"  "+us(1000000)+" ]", 0, 0, 1, 0, 2, us(1000000), "t0", "-"+us(1), "t1", "-"+us(1), "t2", "-"+us(1000002),
			"v"+us(1000000), "-"+us(1000002), "mb", "-"+us(1000000), "e"+us(1000000), e.MS(15*time.Second), "c"+us(1000000), 10001)
		testenv.Equal(e, "a look", e.Run("parts_share", []string{key("parts")}, "", "read", 0, 0, 0, "", ""), fmt.Sprint(looked(e)))
		testenv.Equal(e, "a quits too late", share("a", "quit", 5000, "0", ""), "0")
		testenv.Equal(e, "its tombstone", e.PTTL(key("tomb:a")).Round(10*time.Millisecond).String(), "5s")
		testenv.Equal(e, "a late join", share("a", "join", 9000, "0", ""), "[-2]")
		testenv.Equal(e, "b quits", share("b", "quit", 0, "0", ""), "1")
		wants("b quits", "[]", 0, 0, 1, 0, 2, 0, "t0", "-"+us(1), "t1", "-"+us(1), "t2", "-"+us(1000002))
		testenv.Equal(e, "no tombstone", e.PTTL(key("tomb:b")).String(), "-2ns")
		testenv.Equal(e, "a smaller set", e.Run("parts_share", []string{key("parts"), key("fence"), key("tomb:c")}, "c", "join", 9000, 1, 0, "", shares), "[1 "+us(10001000)+"]")
		wants("a smaller set", "[]", 0, 0, "mc", "-"+us(10001000), "e"+us(10001000), e.MS(19001*time.Millisecond), "c"+us(10001000), 10000)
		testenv.Equal(e, "c quits", e.Run("parts_share", []string{key("parts"), key("fence"), key("tomb:c")}, "c", "quit", 4000, 1, 0, "", shares), "1")
		testenv.Equal(e, "with a tombstone", e.PTTL(key("tomb:c")).Round(10*time.Millisecond).String(), "4s")
	})
}

// The sessions that must give back are told, also beside one that leaves, and those that may take, and no others. Then
// they take these partitions.
func TestWhoIsToldOfPartitions(t *testing.T) {
	lua().ToTheMillisecond(t, func(e *testenv.Timed) {
		heard := e.Raw.Subscribe(e.Context(), shares)
		defer heard.Close()
		_, err := heard.Receive(e.Context())
		testenv.Must(e, err)
		versions := map[string]string{}
		share := func(me, mode, returned string) string {
			answer := e.Run("parts_share", []string{key("parts"), key("fence"), key("tomb:" + me)}, me, mode, 9000, 6, versions[me], returned, shares)
			if fields := strings.Fields(strings.Trim(answer, "[]")); len(fields) > 1 {
				versions[me] = fields[1]
			}
			return answer
		}
		sessions := map[string]string{}
		join := func(me string) {
			share(me, "join", "")
			sessions[me] = versions[me]
		}
		give := func(me string, partitions ...string) {
			var texts []string
			for _, p := range partitions {
				texts = append(texts, fmt.Sprintf("%s:%.0f", p, -e.Raw.ZScore(e.Context(), key("parts"), "t"+p).Val()))
			}
			share(me, "sync", strings.Join(texts, " "))
		}
		told := func(where string, all ...string) {
			e.Helper()
			want := "["
			if all != nil {
				want += shares + "  "
			}
			var ids []string
			for _, who := range all {
				ids = append(ids, sessions[who]+" ")
			}
			testenv.Equal(e, where+": told", fmt.Sprint(e.Received(heard, shares)), want+strings.Join(ids, "")+"]")
		}
		join("x")
		share("x", "sync", "")
		join("y")
		give("x", "3", "4", "5")
		share("y", "sync", "")
		join("z")
		give("x", "2")
		give("y", "5")
		share("z", "sync", "")
		e.Received(heard, shares)
		join("w")
		told("w joins", "x")
		for me, more := range map[string]string{"x": "1]", "y": "0]"} {
			answer := strings.Fields(share(me, "sync", ""))
			testenv.Equal(e, me+" must give back", answer[len(answer)-1], more)
		}
		give("x", "1")
		told("x gives back", "w")
		share("w", "sync", "")
		share("w", "leave", "")
		join("v")
		told("v joins, and w leaves")
		join("u")
		told("u joins", "y")

		e.Pass(8 * time.Second)
		for _, me := range []string{"x", "y", "w", "v", "u"} {
			share(me, "renew", "")
		}
		e.Received(heard, shares)
		e.Pass(2 * time.Second)
		testenv.Equal(e, "z quits after its end", share("z", "quit", ""), "0")
		told("z quits after its end", "v", "u")
		share("v", "sync", "")
		e.Received(heard, shares)
		give("w", "1")
		told("more is free than u lacks", "u", "x", "v")

		for _, me := range []string{"x", "y", "v"} {
			share(me, "quit", "")
		}
		e.Received(heard, shares)
		share("u", "quit", "")
		told("the last one quits, and w leaves")
		join("a")
		share("a", "sync", "")
		join("b")
		give("a", "4", "5")
		share("b", "sync", "")
		join("c")
		join("d")
		e.Received(heard, shares)
		join("f")
		told("a has two too many, and is to give one more", "a", "a")
		testenv.Equal(e, "a repeated join", share("f", "join", ""), "[1 "+sessions["f"]+"]")
		share("a", "quit", "")
		told("a quits", "c", "d", "f")
		share("b", "leave", "")
		told("b leaves", "c", "d", "f")
		e.Pass(8 * time.Second)
		for _, me := range []string{"c", "d", "f"} {
			share(me, "renew", "")
		}
		e.Received(heard, shares)
		e.Pass(2 * time.Second)
		share("c", "renew", "")
		told("the lease of b ends", "d", "f")
		takes := func(me string, n int) {
			e.Helper()
			testenv.Equal(e, "partitions that "+me+" takes", len(strings.Fields(share(me, "sync", "")))/2-2, n)
		}
		join("g")
		takes("c", 2) // one more than the least, as enough is left for the others
		share("g", "leave", "")
		share("d", "leave", "")
		takes("f", 3)
		late := fmt.Sprintf("0:%.0f", -e.Raw.ZScore(e.Context(), key("parts"), "t0").Val())
		share("c", "give", late)
		version := versions["c"]
		share("c", "give", late)
		testenv.Equal(e, "the version after a repeated return", versions["c"], version)
		takes("c", 2)
		testenv.Equal(e, "the score of c", e.Raw.ZScore(e.Context(), key("parts"), "c"+sessions["c"]).Val(), 10003)
	})
}

// looked returns the set as the script answers it.
func looked(e *testenv.Timed) []any {
	all, err := e.Raw.Eval(e.Context(), "return redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')", []string{key("parts")}).Slice()
	testenv.Must(e, err)
	return all
}
