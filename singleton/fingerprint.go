package singleton

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// fingerprint names the definition of a job whose ticks have that fingerprint: the same
// for the same definition in every process.
func fingerprint(ticks string, cfg JobConfig) string {
	h := sha256.New()
	fmt.Fprintf(h, "ticks %s\n", ticks)
	fmt.Fprintf(h, "timeout %d retry %d attempts %d guarantee %d catchup %d deadline %d overlap %d jitter %d\n",
		cfg.Timeout, cfg.Retry, cfg.MaxAttempts, cfg.Guarantee, cfg.CatchUp, cfg.StartingDeadline, cfg.Overlap, cfg.Jitter)
	fmt.Fprintf(h, "revision %q\n", cfg.Revision)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// fingerprintTicks names the ticks of a schedule by what it means, not by how it is
// written: schedules with one fingerprint have the same ticks, at least from windowFrom
// to windowTo, and one that is spelled otherwise keeps its fingerprint.
func fingerprintTicks(s Schedule) string {
	h := sha256.New()
	writeMeaning(h, s)
	return hex.EncodeToString(h.Sum(nil)[:16])
}
