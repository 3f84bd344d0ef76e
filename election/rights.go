package election

import "context"

// CheckRights returns an error if the Redis user lacks a right that electors need. It tries each
// command at the server of the election, on a key that never exists. So it leaves nothing behind.
func (e *Election) CheckRights(ctx context.Context) error { return e.election.CheckRights(ctx) }
