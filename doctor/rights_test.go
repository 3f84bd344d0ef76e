package doctor_test

import (
	"strings"
	"testing"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/doctor"
	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

// CheckRights finds each right that the scripts of a use need, and no other. It leaves nothing behind.
func TestCheckRights(t *testing.T) {
	t.Parallel()
	e := testenv.OnServer(t)
	const common = "evalsha eval subscribe ping publish "
	const mutex = "exists get set del pexpire pttl time zadd zrange zrem zscore hset hget hdel"
	for use, needed := range map[string]string{
		doctor.UseMutex:    mutex,
		doctor.UseOwned:    mutex + " pexpireat zmscore zcard zcount zrangebyscore zrevrangebyscore",
		doctor.UseElection: mutex + " hmget hgetall lpush ltrim",
		doctor.UseJob:      "time lrange exists get set hget hset hdel hmget hkeys hgetall hexists hlen lpush ltrim llen pttl pexpire persist",
	} {
		all := strings.Fields(needed)
		for _, without := range append([]string{""}, all...) {
			rules := strings.Fields("~noonlock:* resetchannels &noonlock:* -@all")
			for _, right := range append(strings.Fields(common), all...) {
				if right != without {
					rules = append(rules, "+"+right)
				}
			}
			err := doctor.CheckRights(t.Context(), e.ClientWith(e.As(use+"-"+without, rules...), lockcore.Config{}), "orders", use)
			switch {
			case without == "" && err != nil:
				t.Errorf("%s with the documented rights: %v", use, err)
			case without != "" && (err == nil || lockcore.IsTemporary(err) || !strings.Contains(err.Error(), strings.ToUpper(without))):
				t.Errorf("%s without %s: %v", use, without, err)
			}
		}
	}
	if keys := e.Raw.Keys(t.Context(), "*").Val(); len(keys) > 0 {
		t.Errorf("keys are left: %q", keys)
	}
	c := e.ClientWith(e.Direct(), lockcore.Config{})
	testenv.MustIs(e, doctor.CheckRights(t.Context(), c, "orders", "everything"), noonlock.ErrConfig)
	testenv.MustIs(e, doctor.CheckRights(t.Context(), c, "a b", doctor.UseMutex), noonlock.ErrConfig)
}
