package explorer

import (
	"fmt"
	"regexp"
	"strings"
)

// mutex is Mutex: the lock is a string, and one attempt has it.
type mutex struct{}

func (mutex) scripts() [4]string {
	return [4]string{"mutex_acquire", "mutex_renew", "mutex_leave", ""}
}

func (mutex) value(a attemptID, h hearing) string {
	return fmt.Sprintf("nl1:%c.%d.%s/x", 'A'+a.process(), a.slot()+1, h.flag())
}

func (h hearing) flag() string {
	if h == uncounted {
		return "u"
	}
	return "t"
}

func (mutex) owner(a attemptID) int { return int(a) }

func (mutex) reads(attemptID) bool { return false }

func (mutex) numbers(*key, func(meaning, string) string) {}

func (k mutex) holders(w world, h hearing) []holder {
	lock, ok := w.get(stem + "lock")
	if !ok {
		return nil
	}
	// While it is held nobody else is given a token: the counter stands at the
	// holder's.
	fence, _ := w.get(stem + "fence")
	token := ""
	if len(fence.pairs) > 0 {
		token = fence.pairs[0].value
	}
	for a := range attempts {
		if lock.pairs[0].value == k.value(a, h) {
			return []holder{{a, lock.ttl, false, token}}
		}
	}
	return nil
}

// owned is RWMutex, and ReentrantMutex if nobody reads: the lock is a hash.
type owned struct {
	letter byte   // s or x
	owners [3]int // of each process
}

func (owned) scripts() [4]string {
	return [4]string{"owned_acquire", "owned_renew", "owned_leave", "owned_downgrade"}
}

func (k owned) mode(a attemptID) string {
	if k.reads(a) {
		return "r"
	}
	return "w"
}

func (k owned) value(a attemptID, h hearing) string {
	return fmt.Sprintf("n%c1:%c.%d.%s.%s/o%d x", k.letter, 'A'+a.process(), a.slot()+1, h.flag(), k.mode(a), k.owner(a))
}

func (k owned) owner(a attemptID) int { return k.owners[a.process()] }

func (k owned) reads(a attemptID) bool { return k.letter == 's' && a.slot() == 1 }

var ownedLine = regexp.MustCompile(`^([wr])(\d+) (n.1:([A-C])\.(\d)\..*)$`)

func (owned) numbers(k *key, visit func(meaning, string) string) {
	for i, p := range k.pairs {
		if p.name == "end" {
			k.pairs[i].value = visit(instant, p.value)
		}
		if !strings.HasPrefix(p.name, "o:") {
			continue
		}
		lines := strings.Split(strings.TrimSuffix(p.value, "\n"), "\n")
		lines[0] = visit(token, lines[0])
		for j, line := range lines[1:] {
			m := ownedLine.FindStringSubmatch(line)
			lines[j+1] = m[1] + visit(instant, m[2]) + " " + m[3]
		}
		k.pairs[i].value = strings.Join(lines, "\n") + "\n"
	}
}

func (k owned) holders(w world, _ hearing) []holder {
	var all []holder
	lock, _ := w.get(stem + "lock")
	for _, p := range lock.pairs {
		if !strings.HasPrefix(p.name, "o:") {
			continue
		}
		lines := strings.Split(strings.TrimSuffix(p.value, "\n"), "\n")
		for _, line := range lines[1:] {
			m := ownedLine.FindStringSubmatch(line)
			if left := number(m[2]) - base; left > 0 {
				all = append(all, holder{parseAttemptID(m[4] + m[5]), left, m[1] == "r", lines[0]})
			}
		}
	}
	return all
}
