// Package kube tests the chart and an election on a real Kubernetes: build tag kube,
// started by scripts/kube-test.sh. See cluster_test.go for what it needs.
package kube
