package partition

import "errors"

// Errors for errors.Is.
var (
	// ErrMoved is the cause of the context of work whose partition another replica is to lead.
	ErrMoved = errors.New("partition: the partition is another replica's share")

	// ErrRunning is the error of Run while another Run of the Runner is running.
	ErrRunning = errors.New("partition: the runner is running")

	// ErrNotReady is the error of Ready, joined with the reason.
	ErrNotReady = errors.New("partition: not ready")

	// ErrOverdue is the error of Check, joined with the cause: the work of a partition has not returned.
	ErrOverdue = errors.New("partition: work has not returned in time")
)

// errHangs is why work is overdue although the lease has not ended.
var errHangs = errors.New("partition: the work has not returned, so no other replica can lead the partition")
