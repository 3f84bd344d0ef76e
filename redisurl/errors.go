package redisurl

import (
	"github.com/noonlock/noonlock"
)

func refuse(field, value, rule string) error {
	return &noonlock.ConfigError{Package: "redisurl", Field: field, Value: value, Rule: rule}
}
