//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/e2e/harness"
	"github.com/sidecar-termination/operator/hack/probe-virtual-node/probe"
)

// The probe reports whether mode Image works, and deletes its pod.
func TestNodeProbe(t *testing.T) {
	harness.Shared(t)
	for _, c := range []struct {
		name, node, image string
		works             bool
		message           string
	}{
		{"virtual node", virtualNode, harness.QuickExitImage, true, "works on node " + virtualNode},
		{"kubelet", fargateNode, harness.QuickExitImage, true, "works on node " + fargateNode},
		{"unpullable image", virtualNode, missingImage, false, "ErrImagePull"},
		{"image without command", fargateNode, "localhost/pause:1", false, "does not have the command"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			test := harness.New(t)
			timeout := time.Minute
			if c.image == missingImage {
				timeout = 15 * time.Second
			}
			verdict, err := probe.Run(test.Context(), test.Clientset, probe.Options{
				Node: c.node, Namespace: test.Namespace, Image: harness.BusyboxImage, QuickExitImage: c.image, Timeout: timeout, Say: test.Logf,
			})
			if err != nil {
				test.Fatal(err)
			}
			if verdict.Works != c.works || !strings.Contains(verdict.Message, c.message) {
				test.Errorf("The verdict is %+v, want works: %t and message %q", verdict, c.works, c.message)
			}
			test.Eventually("the pod to be deleted", harness.FinishTimeout, func(ctx context.Context) error {
				pods := &corev1.PodList{}
				if err := test.Client.List(ctx, pods, client.InNamespace(test.Namespace)); err != nil || len(pods.Items) == 0 {
					return err
				}
				return fmt.Errorf("pod %s exists", pods.Items[0].Name)
			})
		})
	}
}
