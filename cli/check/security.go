// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/config"
)

// checkSecurity compares the security contexts of the operator's pods with what this version ships.
func (c *checker) checkSecurity(context.Context) error {
	shipped, err := config.Deployment()
	if err != nil {
		return err
	}
	weaker := weakenings(&shipped.Spec.Template.Spec, &c.deployment.Spec.Template.Spec)
	if len(weaker) == 0 {
		c.ok("the operator's pods have at most the rights on their node that this version ships")
		return nil
	}
	hint := fmt.Sprintf("if this is not intended, remove it: kubectl edit deployment/%s -n %s", c.deployment.Name, c.deployment.Namespace)
	if c.release() != "" {
		hint = "if this is not intended, correct podSecurityContext and containerSecurityContext in the values of the release. What they do not " +
			"have, remove: kubectl edit deployment/" + c.deployment.Name + " -n " + c.deployment.Namespace
	}
	c.warn(hint, "the operator's pods have more rights on their node than this version ships: %s", firstOf(weaker))
	return nil
}

// weakenings lists the fields by which the installed pods have more rights on their node than the shipped ones. Containers are compared
// with the shipped container, whatever their names are.
func weakenings(shipped, installed *corev1.PodSpec) []string {
	var all []string
	for name, set := range map[string]bool{
		"hostNetwork": installed.HostNetwork, "hostPID": installed.HostPID, "hostIPC": installed.HostIPC,
		"shareProcessNamespace": installed.ShareProcessNamespace != nil && *installed.ShareProcessNamespace,
	} {
		if set {
			all = append(all, name)
		}
	}
	for _, volume := range installed.Volumes {
		if volume.HostPath != nil {
			all = append(all, "hostPath "+volume.HostPath.Path)
		}
	}
	ours := effectiveContext(shipped, &shipped.Containers[0])
	for _, container := range slices.Concat(installed.InitContainers, installed.Containers) {
		theirs := effectiveContext(installed, &container)
		for _, key := range keysOf(ours, theirs) {
			if !isAsStrict(key, ours[key], theirs[key]) {
				all = append(all, fmt.Sprintf("%s of container %s", key, container.Name))
			}
		}
		for _, port := range container.Ports {
			if port.HostPort != 0 {
				all = append(all, fmt.Sprintf("hostPort %d of container %s", port.HostPort, container.Name))
			}
		}
	}
	slices.Sort(all)
	return all
}

// effectiveContext returns the fields of the security context with which the kubelet runs the container.
func effectiveContext(pod *corev1.PodSpec, container *corev1.Container) map[string]any {
	fields := map[string]any{}
	if pod.SecurityContext != nil {
		fields = asMap(pod.SecurityContext)
	}
	if container.SecurityContext != nil {
		maps.Copy(fields, asMap(container.SecurityContext))
	}
	return fields
}

// isAsStrict reports whether the installed field of a security context allows no more than the shipped one. A field that it does not
// know must be as shipped, so that future ones are found.
func isAsStrict(key string, shipped, installed any) bool {
	if reflect.DeepEqual(shipped, installed) {
		return true
	}
	switch key {
	case "runAsUser", "runAsGroup":
		// Without a user, runAsNonRoot makes the kubelet refuse root. OpenShift assigns both.
		return installed != float64(0)
	case "privileged":
		return installed == false
	case "procMount":
		return installed == string(corev1.DefaultProcMount)
	case "seccompProfile", "appArmorProfile":
		profile, _ := installed.(map[string]any)
		kind := profile["type"]
		return kind == string(corev1.SeccompProfileTypeRuntimeDefault) || kind == string(corev1.SeccompProfileTypeLocalhost)
	case "capabilities":
		capabilities, _ := installed.(map[string]any)
		dropped, _ := capabilities["drop"].([]any)
		return capabilities["add"] == nil && slices.Contains(dropped, any("ALL"))
	case "fsGroup", "fsGroupChangePolicy", "supplementalGroups", "supplementalGroupsPolicy", "seLinuxChangePolicy":
		return true // they concern the pod's own volumes
	}
	return false
}

// checkProfiles warns of Go profiles that other machines can read.
func (c *checker) checkProfiles(context.Context) error {
	if address := c.settings.PprofAddress; address != "" && !isLoopback(address) {
		c.warn("serve them to kubectl port-forward only: "+c.set("--pprof-bind-address=127.0.0.1:6060"),
			"profiles are served on %s to everyone who can connect. They show names of objects and can slow the operator down", address)
	}
	return nil
}

// isLoopback reports whether only the pod itself can connect to the address.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
