// Package registry registers metrics that several instances share.
package registry

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// Share registers the collector *c. If an equal one is registered, it sets *c to that one.
func Share[C prometheus.Collector](reg prometheus.Registerer, c *C) error {
	err := reg.Register(*c)
	if there, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if old, ok := there.ExistingCollector.(C); ok {
			*c = old
			return nil
		}
	}
	return err
}
