package explorer

import (
	"bufio"
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/proto"
	"github.com/alicebob/miniredis/v2/server"
)

// base is the server's clock in every state, in ms since 1970. Times in a state are relative to
// it.
const base = int64(1_700_000_000_000)

// A redisServer runs scripts in miniredis on given keys and returns the resulting keys. It is not
// safe for concurrent use. There is no network: commands go directly to miniredis's dispatcher.
type redisServer struct {
	redis  *miniredis.Miniredis
	peer   *server.Peer
	out    *bytes.Buffer
	loaded map[int]string // script id -> SHA1

	mute      bool // PUBLISH is refused
	published []message
}

// A message is a message that a script has published.
type message struct{ channel, text string }

func newServer(tb testing.TB) *redisServer {
	tb.Helper()
	s := &redisServer{redis: miniredis.NewMiniRedis(), out: &bytes.Buffer{}, loaded: map[int]string{}}
	conn, err := s.redis.Dial() // starts the dispatcher
	must(tb, err)
	tb.Cleanup(s.redis.Close)
	_ = conn.Close()
	s.peer = server.NewPeer(bufio.NewWriter(s.out))
	s.redis.Server().SetPreHook(func(p *server.Peer, cmd string, args ...string) bool {
		if cmd != "PUBLISH" {
			return false
		}
		s.published = append(s.published, message{args[0], args[1]})
		if s.mute {
			p.WriteError("NOPERM this user has no permissions to run the 'publish' command")
		} else {
			p.WriteInt(0)
		}
		return true
	})
	return s
}

func (s *redisServer) command(args ...string) (any, error) {
	s.out.Reset()
	s.redis.Server().Dispatch(s.peer, args)
	s.peer.Flush()
	reply, err := proto.Parse(s.out.String())
	if refused, ok := reply.(error); ok {
		return nil, refused
	}
	return reply, err
}

// run restores the keys, runs a script at a given time of the server's clock (ms), and returns the
// resulting keys.
func (s *redisServer) run(sc script, before []key, now int64, keys, argv []string) (after []key, reply any, published []message, err error) {
	s.redis.FlushAll()
	s.redis.SetTime(time.UnixMilli(now))
	for _, k := range before {
		s.restore(k)
	}
	sha, ok := s.loaded[sc.id]
	if !ok {
		reply, err := s.command("SCRIPT", "LOAD", sc.source)
		if err != nil {
			return nil, nil, nil, err
		}
		sha, _ = reply.(string)
		s.loaded[sc.id] = sha
	}
	s.published = nil
	args := append([]string{"EVALSHA", sha, strconv.Itoa(len(keys))}, keys...)
	reply, err = s.command(append(args, argv...)...)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("%s: %w", sc.name, err)
	}
	return s.take(), reply, s.published, nil
}

// A key is one key of the server with its content. Hidden keys, whose names begin with ~, are the
// explorer's memory and not on the server.
type key struct {
	name  string
	kind  byte  // s string, h hash, z sorted set, l list
	ttl   int64 // ms; 0: none
	pairs []pair
}

// A pair is a field, a member and its score, or a string's or list's value.
type pair struct{ name, value string }

func (k key) hidden() bool { return k.name[0] == '~' }

func (k key) find(name string) (string, bool) {
	for _, p := range k.pairs {
		if p.name == name {
			return p.value, true
		}
	}
	return "", false
}

func (s *redisServer) restore(k key) {
	if k.hidden() || len(k.pairs) == 0 {
		return
	}
	for _, p := range k.pairs {
		switch k.kind {
		case 's':
			_ = s.redis.Set(k.name, p.value)
		case 'h':
			s.redis.HSet(k.name, p.name, p.value)
		case 'z':
			score, _ := strconv.ParseFloat(p.value, 64)
			_, _ = s.redis.ZAdd(k.name, score, p.name)
		case 'l':
			_, _ = s.redis.Push(k.name, p.value)
		}
	}
	if k.ttl > 0 {
		s.redis.SetTTL(k.name, time.Duration(k.ttl)*time.Millisecond)
	}
}

// take returns all keys, sorted by name.
func (s *redisServer) take() (all []key) {
	for _, name := range s.redis.Keys() {
		k := key{name: name, ttl: s.redis.TTL(name).Milliseconds()}
		kind := s.redis.Type(name)
		switch k.kind = kind[0]; kind {
		case "string":
			value, _ := s.redis.Get(name)
			k.pairs = []pair{{"", value}}
		case "hash":
			fields, _ := s.redis.HKeys(name)
			slices.Sort(fields)
			for _, f := range fields {
				k.pairs = append(k.pairs, pair{f, s.redis.HGet(name, f)})
			}
		case "zset":
			members, _ := s.redis.ZMembers(name)
			for _, m := range members {
				score, _ := s.redis.ZScore(name, m)
				k.pairs = append(k.pairs, pair{m, strconv.FormatFloat(score, 'f', -1, 64)})
			}
		case "list":
			values, _ := s.redis.List(name)
			for _, v := range values {
				k.pairs = append(k.pairs, pair{"", v})
			}
		default:
			panic("the key " + name + " is a " + kind)
		}
		all = append(all, k)
	}
	return all
}
