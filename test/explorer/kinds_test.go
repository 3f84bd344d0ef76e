package explorer

import (
	"fmt"
	"strconv"
	"strings"
)

// mutex is the model of Mutex: the lock is a string that contains one attempt.
type mutex struct{}

func (mutex) scripts() []string { return []string{"mutex_acquire", "mutex_renew", "mutex_leave"} }

func (mutex) value(a attemptID) string {
	return fmt.Sprintf("nl1:%c.%d/x", 'A'+a.process(), a.slot()+1)
}

func (mutex) owner(a attemptID) int { return int(a) }

func (mutex) reads(attemptID) bool { return false }

func (mutex) numbers(*key, func(meaning, string) string) {}

func (k mutex) holders(w world) []holder {
	lock, ok := w.get(keyPrefix + "lock")
	if !ok {
		return nil
	}
	// While the lock is held, no other attempt gets a token: the counter equals the holder's.
	fence, _ := w.get(keyPrefix + "fence")
	token := ""
	if len(fence.pairs) > 0 {
		token = fence.pairs[0].value
	}
	for a := range attempts {
		if lock.pairs[0].value == k.value(a) {
			return []holder{{a, lock.ttl, false, token, ""}}
		}
	}
	return nil
}

// owned is the model of RWMutex, and of ReentrantMutex if there are no readers. The lock is a sorted set.
type owned struct {
	readers bool
	owners  [3]int // of each process
}

func (owned) scripts() []string {
	return []string{"owned_acquire", "owned_renew", "owned_leave", "owned_downgrade"}
}

func (k owned) mode(a attemptID) string {
	if k.reads(a) {
		return "r"
	}
	return "w"
}

func (k owned) value(a attemptID) string {
	return fmt.Sprintf("ns1:%c.%d.%s/o%d x", 'A'+a.process(), a.slot()+1, k.mode(a), k.owner(a))
}

func (k owned) owner(a attemptID) int { return k.owners[a.process()] }

func (k owned) reads(a attemptID) bool { return k.readers && a.slot() == 1 }

// The scores in a lock with owners, see part_entry.lua.
const (
	ownedWrites = int64(1) << 51
	ownedCounts = int64(1) << 52
)

// ownedScore returns the meaning of a member of a lock with owners: an entry with its end, a
// token (negative), or neither.
func ownedScore(p pair) (end int64, writes, entry bool) {
	score := number(p.value)
	switch {
	case score < 0 || score >= ownedCounts:
		return 0, false, false
	case score >= ownedWrites:
		return score - ownedWrites, true, true
	}
	return score, false, true
}

func (owned) numbers(k *key, visit func(meaning, string) string) {
	for i, p := range k.pairs {
		end, writes, entry := ownedScore(p)
		switch {
		case entry && writes:
			k.pairs[i].value = strconv.FormatInt(ownedWrites+number(visit(instant, strconv.FormatInt(end, 10))), 10)
		case entry:
			k.pairs[i].value = visit(instant, p.value)
		case p.value[0] == '-':
			k.pairs[i].value = "-" + visit(token, p.value[1:])
		}
	}
}

func (k owned) holders(w world) []holder {
	var all []holder
	lock, _ := w.get(keyPrefix + "lock")
	for _, p := range lock.pairs {
		end, writes, entry := ownedScore(p)
		_, rest, _ := strings.Cut(p.name, ":")
		// A mutant may give a count the score of an entry.
		if left := end - base; entry && left > 0 && len(rest) > 2 {
			a := parseAttemptID(rest[:1] + rest[2:3])
			t, _ := lock.find("t:" + p.name)
			slot, _ := lock.find("s:" + p.name)
			all = append(all, holder{a, left, !writes, strings.TrimPrefix(t, "-"), slot})
		}
	}
	return all
}

// semaphore is the model of a Semaphore with two slots. Its entries are like those of readers, whom only their number
// limits, but an attempt does not pass the queue.
type semaphore struct{ owned }

const semaphoreSize = 2

func (semaphore) scripts() []string { return []string{"owned_acquire", "owned_renew", "owned_leave"} }

func (semaphore) value(a attemptID) string {
	return fmt.Sprintf("np1:%c.%d.p/- x", 'A'+a.process(), a.slot()+1)
}

func (semaphore) owner(a attemptID) int { return int(a) }

func (semaphore) reads(attemptID) bool { return true }

// slotScore returns the score of a slot.
func slotScore(slot int) string { return strconv.FormatInt(ownedCounts+ownedWrites+int64(slot), 10) }
