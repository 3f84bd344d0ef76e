# The modules that stand outside go.work, so that nobody who works on the others sees
# their dependencies. Each is built with GOWORK=off.
#
# test/kube/alerts is not among them: Prometheus, which it tests the alerts with, needs
# a newer Go than the rest. scripts/chart-test.sh runs it.
# shellcheck shell=bash disable=SC2034
standalone=(adapters/clientgo internal/ociimage test/kube)
