// SPDX-License-Identifier: Apache-2.0

package check

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/config"
)

func TestWeakenings(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(pod *corev1.PodSpec, container *corev1.SecurityContext)
		want   []string
	}{
		"as shipped": {func(*corev1.PodSpec, *corev1.SecurityContext) {}, nil},
		"users of OpenShift": {func(pod *corev1.PodSpec, _ *corev1.SecurityContext) {
			pod.SecurityContext.RunAsUser, pod.SecurityContext.RunAsGroup, pod.SecurityContext.FSGroup = nil, ptr.To[int64](1000), ptr.To[int64](1000)
		}, nil},
		"stricter": {func(pod *corev1.PodSpec, container *corev1.SecurityContext) {
			pod.SecurityContext.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: ptr.To("strict.json")}
			container.Privileged, container.AppArmorProfile = ptr.To(false), &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}
		}, nil},
		"privileged": {func(_ *corev1.PodSpec, container *corev1.SecurityContext) { container.Privileged = ptr.To(true) },
			[]string{"privileged of container manager"}},
		"capabilities": {func(_ *corev1.PodSpec, container *corev1.SecurityContext) {
			container.Capabilities.Add = []corev1.Capability{"NET_ADMIN"}
		}, []string{"capabilities of container manager"}},
		"kept capabilities": {func(_ *corev1.PodSpec, container *corev1.SecurityContext) { container.Capabilities = nil },
			[]string{"capabilities of container manager"}},
		"escalation and writable root": {func(_ *corev1.PodSpec, container *corev1.SecurityContext) {
			container.AllowPrivilegeEscalation, container.ReadOnlyRootFilesystem = nil, ptr.To(false)
		}, []string{"allowPrivilegeEscalation of container manager", "readOnlyRootFilesystem of container manager"}},
		"root": {func(pod *corev1.PodSpec, container *corev1.SecurityContext) {
			pod.SecurityContext.RunAsUser, container.RunAsNonRoot = ptr.To[int64](0), ptr.To(false)
		}, []string{"runAsNonRoot of container manager", "runAsUser of container manager"}},
		"no contexts": {func(pod *corev1.PodSpec, _ *corev1.SecurityContext) {
			pod.SecurityContext, pod.Containers[0].SecurityContext = nil, nil
		}, []string{"allowPrivilegeEscalation of container manager", "capabilities of container manager", "readOnlyRootFilesystem of container manager",
			"runAsNonRoot of container manager", "seccompProfile of container manager"}},
		"unconfined": {func(pod *corev1.PodSpec, container *corev1.SecurityContext) {
			container.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}
			pod.SecurityContext.AppArmorProfile = &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
		}, []string{"appArmorProfile of container manager", "seccompProfile of container manager"}},
		"host": {func(pod *corev1.PodSpec, _ *corev1.SecurityContext) {
			pod.HostNetwork, pod.HostPID, pod.HostIPC, pod.ShareProcessNamespace = true, true, true, ptr.To(true)
			pod.Volumes = []corev1.Volume{{Name: "root", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
			pod.Containers[0].Ports[0].HostPort = 80
		}, []string{"hostIPC", "hostNetwork", "hostPID", "hostPath /", "hostPort 80 of container manager", "shareProcessNamespace"}},
		"further field": {func(_ *corev1.PodSpec, container *corev1.SecurityContext) {
			container.SELinuxOptions = &corev1.SELinuxOptions{Type: "spc_t"}
		}, []string{"seLinuxOptions of container manager"}},
		"init container": {func(pod *corev1.PodSpec, container *corev1.SecurityContext) {
			init := container.DeepCopy()
			init.Privileged = ptr.To(true)
			pod.InitContainers = []corev1.Container{{Name: "init", SecurityContext: init}}
		}, []string{"privileged of container init"}},
	} {
		shipped, err := config.Deployment()
		if err != nil {
			t.Fatal(err)
		}
		pod := shipped.Spec.Template.Spec.DeepCopy()
		tc.change(pod, pod.Containers[0].SecurityContext)
		if diff := cmp.Diff(tc.want, weakenings(&shipped.Spec.Template.Spec, pod)); diff != "" {
			t.Errorf("%s: weakenings (-want +got):\n%s", name, diff)
		}
	}
}

func TestProfilesOnLoopbackOnly(t *testing.T) {
	for address, want := range map[string]bool{
		"": true, "127.0.0.1:6060": true, "[::1]:6060": true, "localhost:6060": true,
		":6060": false, "0.0.0.0:6060": false, "[::]:6060": false, "10.0.0.1:6060": false,
	} {
		c := newChecker(t, "--pprof-bind-address="+address)
		if err := c.checkProfiles(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := len(c.results) == 0; got != want {
			t.Errorf("%q: %v", address, c.results)
		}
	}
}
