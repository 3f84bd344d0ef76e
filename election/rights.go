package election

import (
	"github.com/noonlock/noonlock/election/internal/record"
	"github.com/noonlock/noonlock/internal/lock"
)

// Needs returns the keys and the scripts of elections, for doctor.CheckRights.
func Needs() lock.Needs { return record.Needs() }
