package cli_test

import (
	"testing"

	"github.com/redis/go-redis/v9/logging"
)

// TestMain keeps go-redis from printing errors that it also returns.
func TestMain(m *testing.M) {
	logging.Disable()
	m.Run()
}
