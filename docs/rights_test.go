package docs_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/noonlock/noonlock/internal/testenv"
)

// setup names the rights for setting up a connection, as the packages document them.
const setup = "Setting up a connection also needs +select if redis.Options.DB is not 0. A cluster needs in addition &noonlock:{* +cluster|slots +cluster|info +asking +ssubscribe +sunsubscribe +spublish."

// replicas names the rights for MinReplicas and LockDelay. Leases of adapters/clientgo have none.
const replicas = "MinReplicas needs +wait. LockDelay needs +info +get +set +time."

// Every package that documents rights documents those for setting up a connection.
func TestRightsOfSetupAreDocumented(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"../lockcore/doc.go", "../singleton/doc.go", "../election/doc.go", "../adapters/clientgo/doc.go"} {
		text, err := os.ReadFile(path)
		testenv.Must(t, err)
		words := strings.Join(strings.Fields(comment.ReplaceAllString(string(text), "")), " ")
		for _, rule := range []string{setup, replicas} {
			if !strings.Contains(words, rule) && (rule == setup || !strings.Contains(path, "clientgo")) {
				t.Errorf("%s does not contain %q", path, rule)
			}
		}
	}
}

var comment = regexp.MustCompile(`(?m)^// ?`)

// ruleLists are the lists of ACL rules of a document.
func ruleLists(t *testing.T, path string) (lists [][]string) {
	t.Helper()
	text, err := os.ReadFile(path)
	testenv.Must(t, err)
	for paragraph := range strings.SplitSeq(comment.ReplaceAllString(string(text), ""), "\n\n") {
		if at := strings.Index(paragraph, "~noonlock:*"); at >= 0 && strings.Contains(paragraph, "-@all") {
			lists = append(lists, strings.Fields(paragraph[at:]))
		}
	}
	return lists
}

// The rights of a Mutex are the same in all documents. Each list with
// channels begins with the rule that Redis 6.2 requires.
func TestRightsAreReportedAlike(t *testing.T) {
	t.Parallel()
	var mutex [][]string
	for path, hasMutex := range map[string]bool{"../lockcore/doc.go": true, "../singleton/doc.go": false, "SECURITY.md": true, "../election/doc.go": false} {
		lists := ruleLists(t, path)
		if len(lists) == 0 {
			t.Fatalf("%s has no list of rights", path)
		}
		if hasMutex {
			mutex = append(mutex, lists[0])
		}
		for _, rules := range lists {
			channel := slices.IndexFunc(rules, func(rule string) bool { return strings.HasPrefix(rule, "&") })
			if channel >= 0 && rules[channel-1] != "resetchannels" {
				t.Errorf("%s: a list has channels without resetchannels before them: %q", path, rules)
			}
		}
	}
	if !slices.Equal(mutex[0], mutex[1]) {
		t.Errorf("the rights of a Mutex are %q and %q", mutex[0], mutex[1])
	}
}
