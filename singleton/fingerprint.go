package singleton

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// fingerprint names the definition of a job: the same for the same definition in
// every process and every version of this library, so what is hashed must not
// change its form.
func fingerprint(s Schedule, cfg JobConfig) string {
	h := sha256.New()
	fmt.Fprintf(h, "schedule %s\n", describe(s))
	fmt.Fprintf(h, "timeout %d retry %d attempts %d guarantee %d catchup %d deadline %d overlap %d jitter %d\n",
		cfg.Timeout, cfg.Retry, cfg.MaxAttempts, cfg.Guarantee, cfg.CatchUp, cfg.StartingDeadline, cfg.Overlap, cfg.Jitter)
	fmt.Fprintf(h, "revision %q\n", cfg.Revision)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// fingerprintTicks names the schedule alone, as fingerprint does the whole.
func fingerprintTicks(s Schedule) string {
	h := sha256.Sum256([]byte("ticks of " + describe(s)))
	return hex.EncodeToString(h[:16])
}

// describe tells schedules apart: by their String method, or by some of their
// ticks.
func describe(s Schedule) string {
	if named, ok := s.(fmt.Stringer); ok {
		return named.String()
	}
	var text strings.Builder
	text.WriteString("ticks")
	for _, year := range []int{2024, 2032} {
		tick := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
		for range 20 {
			if tick = s.Next(tick); tick.IsZero() {
				break
			}
			fmt.Fprintf(&text, " %d", tick.UnixMilli())
		}
	}
	return text.String()
}
