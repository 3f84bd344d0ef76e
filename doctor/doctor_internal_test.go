package doctor

import (
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
)

func TestEstimateClock(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for name, tt := range map[string]struct {
		samples []sample
		want    estimate
	}{
		"one reading": {
			[]sample{{at: 0, rtt: 4 * ms, offset: 7 * ms}},
			estimate{offset: 7 * ms, offsetError: 2 * ms},
		},
		"the fastest readings count": {
			[]sample{
				{at: 0, rtt: 900 * ms, offset: 300 * ms},
				{at: 1000 * ms, rtt: 2 * ms, offset: 10 * ms},
				{at: 2000 * ms, rtt: 1 * ms, offset: 500 * ms}, // neither at the beginning nor at the end
				{at: 2500 * ms, rtt: 1 * ms, offset: 500 * ms},
				{at: 3000 * ms, rtt: 4 * ms, offset: 30 * ms},
				{at: 4000 * ms, rtt: 800 * ms, offset: -100 * ms},
			},
			estimate{offset: 30 * ms, offsetError: 2 * ms, drift: 0.01, driftError: 0.0015},
		},
		"a clock that stands still": {
			[]sample{{at: 0, offset: 0}, {at: 500 * ms, offset: -500 * ms}, {at: 1000 * ms, offset: -1000 * ms}},
			estimate{offset: -1000 * ms, drift: -1},
		},
	} {
		got := estimateClock(tt.samples)
		near := func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }
		if got.offset != tt.want.offset || got.offsetError != tt.want.offsetError || !near(got.drift, tt.want.drift) || !near(got.driftError, tt.want.driftError) {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}

// of returns a server for which nothing was asked.
func of(ttl time.Duration) *node { return &node{cfg: Config{TTL: ttl}} }

// A judgement counts only what is certain.
func TestJudgements(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	clock := func(rtt, offset, later time.Duration) Verdict {
		n := of(10 * time.Second)
		n.judgeClock([]sample{{rtt: rtt, offset: offset}, {at: 500 * ms, rtt: rtt, offset: offset}, {at: time.Second, rtt: rtt, offset: offset + later}})
		return n.checks[0].Verdict
	}
	trips := func(p50, p99 time.Duration) Verdict {
		n := of(10 * time.Second)
		samples := make([]sample, 100)
		for i := range samples {
			samples[i].rtt = p50
		}
		samples[98].rtt, samples[99].rtt = p99, p99
		n.judgeRoundTrips(samples)
		return n.checks[0].Verdict
	}
	clocks := func(ttl, apart, rtt time.Duration) Verdict {
		var nodes []*node
		for _, offset := range []time.Duration{0, apart / 2, apart} {
			nodes = append(nodes, &node{clock: &estimate{offset: offset, offsetError: rtt / 2}})
		}
		return compareClocks(nodes, ttl)[0].Verdict
	}
	judged := func(check string, n node) Verdict {
		verdict, _ := settings[slices.IndexFunc(settings, func(s setting) bool { return s.check == check })].judge(n.facts())
		return verdict
	}
	replicas := func(line string, sentinel bool) Verdict {
		return judged("replication", node{sentinel: sentinel, info: parseInfo("master_repl_offset:100\r\n" + line + "\r\n")})
	}
	least := func(good, config string) Verdict {
		n := node{info: parseInfo("connected_slaves:2\r\nmin_slaves_good_slaves:" + good)}
		if config != "" {
			n.config = map[string]string{"min-replicas-to-write": config}
		}
		return judged("min-replicas", n)
	}
	version := func(info string, sharded bool) Verdict {
		return judged("version", node{sharded: sharded, info: parseInfo(info)})
	}
	for name, tt := range map[string]struct{ got, want Verdict }{
		"a good clock":                     {clock(ms, 10*ms, 0), OK},
		"another time":                     {clock(ms, -1100*ms, 0), Warn},
		"another time, a slow network":     {clock(300*ms, 1100*ms, 0), OK},
		"a drift of 0.5 %":                 {clock(ms, 0, 5*ms), Warn},
		"a drift of -2 %":                  {clock(ms, 0, -20*ms), Fail},
		"a drift of 2 %, a slow network":   {clock(30*ms, 0, 20*ms), OK},
		"a fast server":                    {trips(ms, 2*ms), OK},
		"a server that is slow at times":   {trips(ms, 300*ms), Warn},
		"a slow server":                    {trips(4*time.Second, 4*time.Second), Fail},
		"servers with one time":            {clocks(10*time.Second, 90*ms, 0), OK},
		"servers with different times":     {clocks(10*time.Second, 110*ms, 2*ms), Warn},
		"a short TTL":                      {clocks(time.Second, 90*ms, 2*ms), Warn},
		"different times, a slow network":  {clocks(10*time.Second, 110*ms, 100*ms), OK},
		"no replica":                       {replicas("", false), OK},
		"no replica behind Sentinel":       {replicas("", true), Warn},
		"a replica":                        {replicas("slave0:ip=h,port=1,state=online,offset=90,lag=1", false), OK},
		"enough replicas":                  {least("1", "1"), OK},
		"too few replicas":                 {least("1", "2"), Fail},
		"enough replicas, CONFIG refused":  {least("1", ""), Warn},
		"too few replicas, CONFIG refused": {least("0", ""), Fail},
		"a replica that is late":           {replicas("slave0:ip=h,port=1,state=online,offset=90,lag=11", true), Warn},
		"a replica without data":           {replicas("slave0:ip=h,port=1,state=wait_bgsave,offset=0,lag=0", false), Warn},
		"a second replica that is late":    {replicas("slave0:ip=h,port=1,state=online,offset=90,lag=0\nslave1:ip=h,port=2,state=online,offset=1,lag=99", false), Warn},
		"Redis 6.0":                        {version("redis_version:6.0.16", false), Fail},
		"Redis 6.2":                        {version("redis_version:6.2.16", false), OK},
		"Redis 6.2 as a cluster":           {version("redis_version:6.2.16", true), Fail},
		"Redis 7.0 as a cluster":           {version("redis_version:7.0.15", true), OK},
		"Redis 8.2":                        {version("redis_version:8.2.0", false), Warn},
		"Valkey, which says it is Redis":   {version("server_name:valkey\nredis_version:7.2.4\nvalkey_version:8.0.1", true), OK},
		"Dragonfly":                        {version("redis_version:7.4.0\ndragonfly_version:df-v1", false), Warn},
		"a server that has no version":     {version("", false), Warn},
		"a development version before 8.0": {version("redis_version:7.9.226", false), OK},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: %s, want %s", name, tt.got, tt.want)
		}
	}
}

// page returns a page of the documentation.
func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../docs/" + name)
	testenv.Must(t, err)
	return string(text)
}

// The rules are those of docs/OPERATIONS.md.
func TestRulesAreThoseOfOperations(t *testing.T) {
	t.Parallel()
	_, section, found := strings.Cut(page(t, "OPERATIONS.md"), "\n### What noonctl doctor checks\n")
	if !found {
		t.Fatal("OPERATIONS.md has no section about noonctl doctor")
	}
	section, _, _ = strings.Cut(section, "\n##")
	listed := map[string]string{}
	for _, row := range regexp.MustCompile(`(?m)^\| ([a-z -]+) \| (.+) \|$`).FindAllStringSubmatch(section, -1) {
		if row[1] != "check" && row[1] != "---" {
			listed[row[1]] = row[2]
		}
	}
	for check, rule := range rules {
		if listed[check] != rule {
			t.Errorf("the rule of %s is\n%q, in OPERATIONS.md\n%q", check, rule, listed[check])
		}
	}
	for check := range listed {
		if rules[check] == "" {
			t.Errorf("OPERATIONS.md has a rule for %s", check)
		}
	}
}

// The parts of keys are those of docs/ARCHITECTURE.md.
func TestPartsAreThoseOfArchitecture(t *testing.T) {
	t.Parallel()
	_, section, _ := strings.Cut(page(t, "ARCHITECTURE.md"), "\n## Keys\n")
	section, _, _ = strings.Cut(section, "\n## ")
	types := map[string][]string{"never": nil}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z]+)[^`]*` \\| (string|sorted set|hash|list) \\|").FindAllStringSubmatch(section, -1) {
		types[row[1]] = append(types[row[1]], strings.ReplaceAll(row[2], "sorted set", "zset"))
	}
	types["history"], types["ack"] = []string{"string"}, []string{"string"} // described in the text
	parts := partsOf()
	if len(types) != len(parts) {
		t.Errorf("%d parts, and %d in ARCHITECTURE.md", len(parts), len(types))
	}
	for name, p := range parts {
		if !slices.Equal(types[name], p.Types) {
			t.Errorf("%s: %q, in ARCHITECTURE.md %q", name, p.Types, types[name])
		}
	}
	for rest, want := range map[string]string{
		"{a}:lock": "lock", "{job/a}:job": "job", "{a}:tomb:X.1": "tomb", "{17}:history": "history", "history": "history", "quorum": "quorum",
		"{a}:tomb": "", "{a}:lock:x": "", "{a}:quorum": "", "lock": "", "{a:lock": "", "{}:lock": "", "{a}:other": "",
	} {
		if got, ok := partOf(parts, rest); got != want && ok || ok != (want != "") {
			t.Errorf("%s: %q, %v", rest, got, ok)
		}
	}
}
