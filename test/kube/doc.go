// Package kube tests the chart and an election on a real Kubernetes cluster, with the build tag
// kube. scripts/kube-test.sh runs it. See cluster_test.go for the requirements.
package kube
