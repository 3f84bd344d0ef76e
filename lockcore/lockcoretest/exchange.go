package lockcoretest

import "strings"

// exchange is a request that was sent, with the rules for its reply.
type exchange struct {
	left      int  // replies still expected
	subscribe bool // the replies are confirmations, which RESP3 sends as pushes
	discard   bool // the request is the first of two duplicates
	rules     []*Rule
}

// expect records which replies the request will have.
func (r *relay) expect(cmd []string, rules []*Rule, discard bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := &exchange{left: 1, discard: discard}
	if !discard {
		e.rules = rules
	}
	if verb, ok := strings.CutSuffix(cmd[0], "SUBSCRIBE"); ok {
		e.subscribe = true
		kind, leave := strings.CutSuffix(verb, "UN")
		names := r.channels[kind]
		switch {
		case !leave:
			r.subscribed = true
			if names == nil {
				names = map[string]struct{}{}
				r.channels[kind] = names
			}
			for _, name := range cmd[1:] {
				names[name] = struct{}{}
			}
			e.left = len(cmd) - 1
		case len(cmd) == 1:
			e.left = max(1, len(names))
			clear(names)
		default:
			for _, name := range cmd[1:] {
				delete(names, name)
			}
			e.left = len(cmd) - 1
		}
	}
	r.pending = append(r.pending, e)
}

// answers returns the request that p answers, nil for a message or another push.
func (r *relay) answers(p reply) *exchange {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.pending) == 0 || r.isMessage(p) || p.kind == '>' && !r.pending[0].subscribe {
		return nil
	}
	e := r.pending[0]
	if e.left--; e.left <= 0 || p.kind == '-' {
		r.pending = r.pending[1:]
	}
	return e
}

func (r *relay) isMessage(p reply) bool {
	if p.kind != '>' && (p.kind != '*' || !r.subscribed) || len(p.items) < 3 {
		return false
	}
	return p.items[0] == "message" || p.items[0] == "pmessage" || p.items[0] == "smessage"
}
