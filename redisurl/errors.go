package redisurl

import (
	"errors"

	"github.com/noonlock/noonlock/internal/input"
)

// ErrConfig matches every *ConfigError.
var ErrConfig = errors.New("redisurl: refused")

// ConfigError reports an invalid URL. Its fields are strings: Field names the invalid part, Value is
// what it is, and Rule says what it must be. They contain no part of a user or password, even if the URL
// is malformed. It matches ErrConfig.
type ConfigError = input.ConfigError[refused]

type refused struct{}

func (refused) Refusal() error { return ErrConfig }

func refuse(field, value, rule string) error {
	return &ConfigError{Field: field, Value: value, Rule: rule}
}
