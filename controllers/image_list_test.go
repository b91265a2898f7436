// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controllers

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/podtest"
	"github.com/sidecar-termination/operator/internal/imagelist"
)

const (
	unlisted = "registry.example.evil.test/quick-exit:v1"
	tagged   = "registry.example/listed:v1"
	digested = "registry.example/listed@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)

// listed returns options whose image list has one repository.
func listed(t *testing.T) Options {
	t.Helper()
	entry, err := imagelist.ParseEntry("registry.example/listed")
	if err != nil {
		t.Fatal(err)
	}
	options := testOptions()
	options.Capabilities.Images.Entries = []imagelist.Entry{entry}
	return options
}

func TestSwapUsesListedImagesOnly(t *testing.T) {
	const ofPolicy, ofEnvironment = "policy", "environment"
	for name, tc := range map[string]struct {
		options       Options
		image, source string
		refused       bool
	}{
		"a policy's image from another registry is refused": {listed(t), unlisted, ofPolicy, true},
		"a policy's listed image is used":                   {listed(t), tagged, ofPolicy, false},
		"a pod author's own image is refused":               {listed(t), unlisted, ofEnvironment, true},
		"a pod author's listed image is used":               {listed(t), digested, ofEnvironment, false},
		"a pod author's own image is used without a list":   {testOptions(), unlisted, ofEnvironment, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, tc.options, nil)
			b.newPolicy("mesh", mode(v1alpha1.ModeImage, ""), func(spec *v1alpha1.PolicySpec) {
				spec.Fallback = v1alpha1.FallbackDisabled
				if tc.source == ofPolicy {
					spec.Image = tc.image
				}
			})
			pod := b.newPod("job-1", podtest.MainDone, func(p *corev1.Pod) {
				if tc.source == ofEnvironment {
					p.Spec.Containers[1].Env = []corev1.EnvVar{{Name: v1alpha1.EnvTerminateWithImage, Value: tc.image}}
				}
			})
			b.reconcile(pod)
			b.reload(pod)
			events := strings.Join(b.events.take(), "\n")
			if !tc.refused {
				b.wrote("PATCH pods")
				if got := pod.Spec.Containers[1].Image; got != tc.image {
					t.Errorf("the sidecar has image %s, want %s; events: %s", got, tc.image, events)
				}
				return
			}
			b.wrote()
			if got := pod.Spec.Containers[1].Image; got != "proxy:v1" {
				t.Errorf("the sidecar has image %s", got)
			}
			if !strings.HasPrefix(events, "Warning "+string(v1alpha1.ReasonImageNotAllowed)+" ") || !strings.Contains(events, tc.image) {
				t.Errorf("events do not say that %s is not allowed: %q", tc.image, events)
			}
		})
	}
}

func TestPullJobsUseListedImagesOnly(t *testing.T) {
	options := listed(t)
	options.StatusPeriod, options.PrePullNamespace = 0, systemNamespace
	b := newBench(t, options, newKruise(t))
	policy := b.newPolicy("mesh", withPrePull, func(spec *v1alpha1.PolicySpec) { spec.Image = unlisted })
	b.pulls(policy)
	b.says(policy, "False "+string(v1alpha1.ReasonImageNotAllowed)+" nothing is pulled, because quick-exit image "+unlisted+" is not allowed")
	if got := b.images(); len(got) > 0 {
		t.Errorf("pulled: %v", got)
	}
	policy.Spec.Image = tagged
	b.update(policy)
	b.pulls(policy)
	b.says(policy, "False PrePulling "+tagged)
}
