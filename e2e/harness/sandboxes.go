//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Sandboxes returns the UIDs of the pods that have a sandbox on one of the nodes. The kubelet reads them from the container
// runtime, so they include pods whose status in the API is wrong. A sandbox is gone when the kubelet has torn its pod down.
func (c *Cluster) Sandboxes(ctx context.Context, nodes ...string) (map[types.UID]bool, error) {
	found := map[types.UID]bool{}
	for _, node := range nodes {
		content, err := c.Clientset.CoreV1().RESTClient().Get().Resource("nodes").Name(node).SubResource("proxy").Suffix("runningpods").DoRaw(ctx)
		if err != nil {
			return nil, fmt.Errorf("get the running pods of node %s: %w", node, err)
		}
		pods := corev1.PodList{}
		if err := json.Unmarshal(content, &pods); err != nil {
			return nil, fmt.Errorf("read the running pods of node %s: %w", node, err)
		}
		for i := range pods.Items {
			found[pods.Items[i].UID] = true
		}
	}
	return found, nil
}
