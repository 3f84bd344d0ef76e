package singleton

import "context"

// CheckRights returns an error if the Redis user lacks a right that replicas of the job need. It
// tries each command at the server of the job, on a key that never exists. So it leaves nothing
// behind. A Daemon needs the rights of a mutex: see lockcore's Client.CheckRights.
func (j *Job) CheckRights(ctx context.Context) error { return j.ledger.CheckRights(ctx) }
