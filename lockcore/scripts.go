package lockcore

import "github.com/noonlock/noonlock/internal/lock"

// ownScripts are those of all Clients.
var ownScripts = lock.OwnScripts
