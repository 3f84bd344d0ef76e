package lockcore

import (
	"context"

	"github.com/noonlock/noonlock/internal/lock"
)

// CheckRights returns an error if the Redis user lacks a right that the locks of a kind need:
// LockMutex or LockReadWrite. It tries each command of their scripts at the server
// of the name, on a key of the name that never exists. So it leaves nothing behind. It does not try
// PUBLISH, which scripts can do without. If the server does not answer, it retries for up to 6.7 s.
func (c *Client) CheckRights(ctx context.Context, name string, kind LockKind) error {
	room := c.room()
	scripts := room.MutexScripts()
	switch kind {
	case LockMutex:
	case LockReadWrite:
		if err := room.One("a lock with owners"); err != nil {
			return err
		}
		scripts = room.OwnedScripts()
	default:
		return lock.Refuse("kind", "LockMutex or LockReadWrite", kind)
	}
	return room.CheckRights(ctx, name, scripts...)
}
