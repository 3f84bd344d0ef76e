package singleton

import (
	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

// Needs returns the keys and the scripts of jobs, for doctor.CheckRights.
func Needs() lock.Needs { return ledger.Needs() }
