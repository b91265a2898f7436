// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// versionOfPod is a cache with this version of every pod, or with none.
type versionOfPod struct {
	client.Reader
	version string
}

func (v versionOfPod) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	if v.version == "" {
		return apierrors.NewNotFound(corev1.Resource("pods"), key.Name)
	}
	object.SetResourceVersion(v.version)
	return nil
}

// The write of a phase moves the pod from one cache to the other, and either may see it first.
func TestNewerVersionOfPodIsRead(t *testing.T) {
	for _, tc := range []struct{ unfinished, teardown, want string }{
		{"9", "10", "10"}, {"10", "9", "10"}, {"9", "", "9"}, {"", "10", "10"}, {"", "", ""},
	} {
		reader := &clusterReader{cache: versionOfPod{version: tc.unfinished}, teardown: versionOfPod{version: tc.teardown}}
		pod, err := reader.pod(t.Context(), types.NamespacedName{Namespace: "batch", Name: "job-1"})
		got := ""
		if err == nil {
			got = pod.ResourceVersion
		}
		if got != tc.want || client.IgnoreNotFound(err) != nil {
			t.Errorf("versions %q and %q: read %q, error %v", tc.unfinished, tc.teardown, got, err)
		}
	}
}
