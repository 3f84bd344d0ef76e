package noon

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

func TestScriptsDeclareWhatTheyUse(t *testing.T) {
	t.Parallel()
	testenv.Scripts{Files: luaFiles}.CheckHeaders(t)
}

// A chapter has replicas of several databases, by name.
type chapter struct {
	*testenv.Env
	replicas map[string]*Origin
}

// admitted asks for replicas, whose databases are their first letters, and requires which are admitted.
func (c *chapter) admitted(want string, replicas ...string) {
	c.Helper()
	var got []string
	for _, name := range replicas {
		o := c.replicas[name]
		if o == nil {
			var err error
			o, err = NewOrigin(c.ClientWith(c.Direct(), lockcore.Config{Identity: name}), time.Second)
			testenv.Must(c, err)
			c.replicas[name] = o
		}
		err := o.Admit(c.Context(), name[:1])
		switch {
		case err == nil:
			got = append(got, name)
		case !errors.Is(err, ErrOtherDatabase) && !strings.Contains(err.Error(), "no database had the draws"):
			c.Errorf("%s: %v", name, err)
		}
	}
	if strings.Join(got, " ") != want {
		c.Errorf("%q are admitted; want %q", got, want)
	}
}

func (c *chapter) loses() {
	c.Helper()
	testenv.Must(c, c.Raw.FlushAll(c.Context()).Err())
}

func (c *chapter) accepts(database string) {
	c.Helper()
	testenv.Must(c, c.replicas[database].Accept(c.Context(), database))
}

// FAULTS 142: who has the draws after each loss, with p, production, and the others.
func TestFault142_TheOrigin(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(c *chapter){
		"the refused one restores": func(c *chapter) {
			c.loses()
			c.admitted("", "q", "s")
			c.Pass(settle)
			c.admitted("p", "q", "s", "p")
		},
		"a new one waits for the others": func(c *chapter) {
			c.loses()
			c.admitted("", "s")
			c.Pass(settle - time.Millisecond)
			c.admitted("", "s")
			c.admitted("p p2", "p", "p2", "s")
			c.Pass(settle)
			c.admitted("p", "s", "p")
		},
		"nobody is alive": func(c *chapter) {
			c.loses()
			c.admitted("", "s", "s2", "t")
			c.Pass(settle)
			c.admitted("s s2", "t", "s", "s2")
			c.admitted("p", "p", "s") // it was away, and has the older claim
		},
		"the newest acceptance counts": func(c *chapter) {
			c.accepts("q")
			c.admitted("q", "q", "p")
			c.accepts("p")
			c.accepts("q")
			c.admitted("q", "q", "p")
			c.loses()
			c.admitted("q", "p", "q", "s")
		},
		"a replica missed the acceptance before the loss": func(c *chapter) {
			c.accepts("q")
			c.admitted("q", "q")
			c.loses()
			c.admitted("p", "p") // nobody else has asked yet
			c.admitted("q", "q", "p")
		},
		"an acceptance after a loss": func(c *chapter) {
			c.loses()
			c.accepts("q")
			c.admitted("q", "p", "q")
		},
		"the server loses only the newest": func(c *chapter) {
			before := c.Raw.Get(c.Context(), "noonlock:{job/lottery}:record").Val()
			c.accepts("q")
			c.admitted("q", "q")
			testenv.Must(c, c.Raw.Set(c.Context(), "noonlock:{job/lottery}:record", before, 0).Err())
			c.admitted("q", "q", "p")
		},
		"a new replica makes the server remember it": func(c *chapter) {
			c.Pass(remembered / 2)
			c.admitted("p", "p")
			c.admitted("p3", "p3")
			if ttl := c.PTTL("noonlock:{job/lottery}:record"); ttl != remembered {
				c.Errorf("the TTL is %v", ttl)
			}
		},
		"the clock is set back": func(c *chapter) {
			c.accepts("p")
			c.Bubble.Server().SetTime(time.Now().Add(-time.Hour))
			c.accepts("q")
			c.admitted("q", "q")
			c.loses()
			c.admitted("p", "p")
			c.admitted("q", "q", "p")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testenv.InBubble(t, func(e *testenv.Env) {
				c := &chapter{e, map[string]*Origin{}}
				c.admitted("", "p", "q")
				c.Pass(settle)
				c.admitted("p", "q", "p")
				test(c)
			})
		})
	}
}
