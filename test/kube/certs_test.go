//go:build kube

package kube

import "github.com/noonlock/noonlock/internal/testing/servers"

// knows creates the ConfigMap roots with an authority, and the Secret client with a certificate
// of it. The chart uses both.
func (c *cluster) knows(authority *servers.Certificate) {
	c.Helper()
	client := authority.Sign(c)
	c.kubectl("create", "configmap", "roots", "--from-file=ca.crt="+authority.Cert)
	c.kubectl("create", "secret", "tls", "client", "--cert="+client.Cert, "--key="+client.Key)
}
