package input_test

import (
	"errors"
	"testing"

	"github.com/noonlock/noonlock/internal/input"
)

var errRefused = errors.New("shop: refused")

type shop struct{}

func (shop) Refusal() error { return errRefused }

var errOther = errors.New("bank: refused")

type bank struct{}

func (bank) Refusal() error { return errOther }

// The refusals of two packages are distinguished by sentinel and by type.
func TestConfigErrorsAreThePackages(t *testing.T) {
	t.Parallel()
	var err error = &input.ConfigError[shop]{Field: "Config.Price", Value: "-1", Rule: "positive"}
	if got := err.Error(); got != "shop: Config.Price is -1; it must be positive" {
		t.Errorf("the text is %q", got)
	}
	if !errors.Is(err, errRefused) || errors.Is(err, errOther) {
		t.Errorf("%v is another package's", err)
	}
	var own *input.ConfigError[shop]
	var others *input.ConfigError[bank]
	if !errors.As(err, &own) || errors.As(err, &others) {
		t.Errorf("%v is of another package's type", err)
	}
}
