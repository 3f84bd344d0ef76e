// Package wire sends requests to Redis and hears its messages. It is the only package
// that knows servers and connections; the packages above it know names and scripts.
package wire
