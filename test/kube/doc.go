// Package kube tests the chart and an election on a real Kubernetes cluster, with the build tag
// kube. scripts/kube-test.sh runs it.
package kube
