//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"os"

	"github.com/sidecar-termination/operator/hack/recording"
)

// recordEnvVar is the directory into which runs of the tests record all pods. Without it they record nothing.
const recordEnvVar = "E2E_RECORD"

// Record records the pods of the cluster until the returned function is called.
func Record() (stop func() error, err error) {
	directory := os.Getenv(recordEnvVar)
	if directory == "" {
		return func() error { return nil }, nil
	}
	cluster, err := Connect()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- recording.Run(ctx, cluster.Config, directory) }()
	return func() error {
		cancel()
		return <-ended
	}, nil
}
