// Package registry registers metrics that several of a kind have in common.
package registry

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// Share registers a collector, or takes the one that is registered already.
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
