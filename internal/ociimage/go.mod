module github.com/noonlock/noonlock/internal/ociimage

go 1.25.0

require (
	github.com/opencontainers/go-digest v1.0.0
	github.com/opencontainers/image-spec v1.1.1
	golang.org/x/crypto/x509roots/fallback v0.0.0-20260709184058-243e02a382f8
)
