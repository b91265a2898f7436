// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"

	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/sidecar-termination/operator/internal/explain"
)

// The API server is asked who scrapes, and whether they may get /metrics.
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

// metricsServer returns how metrics are served: by HTTPS and to those whom the API server lets get /metrics, or with
// --metrics-authentication=Disabled in the clear and to all who reach the address. Without --metrics-cert-dir the
// certificate is made at the start and signed by nobody.
func (o *options) metricsServer() metricsserver.Options {
	server := metricsserver.Options{BindAddress: o.metricsAddress}
	if o.metricsAuthentication == disabled {
		return server
	}
	server.SecureServing = true
	server.FilterProvider = filters.WithAuthenticationAndAuthorization
	server.CertDir = o.metricsCertDir
	// HTTP/2 lets one client open and drop streams at a rate that costs a server much (CVE-2023-44487), and one
	// scrape at a time has no use for it.
	server.TLSOpts = []func(*tls.Config){func(config *tls.Config) { config.NextProtos = []string{"http/1.1"} }}
	return server
}

// metricsSettings returns what check says of the metrics.
func (o *options) metricsSettings() explain.MetricsSettings {
	if o.metricsAddress == "0" {
		return explain.MetricsSettings{}
	}
	return explain.MetricsSettings{Address: o.metricsAddress, Authenticated: o.metricsAuthentication == enabled}
}
