// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apimachinery/pkg/version"

	"github.com/sidecar-termination/operator/internal/settings"
)

// The code generates role.yaml from markers.
func TestPermissionsMatchTheRoles(t *testing.T) {
	for file, list := range map[string][]permission{
		"role.yaml":                    permissions,
		"../rbac-namespaced/role.yaml": newNamespacedChecker(t, "--watch-namespaces=batch").permissions(),
		"leader_election_role.yaml":    leasePermissions(settings.Namespace, settings.LeaseName),
	} {
		t.Run(file, func(t *testing.T) {
			var got []string
			for _, r := range list {
				var names []string
				if r.name != "" {
					names = []string{r.name}
				}
				got = append(got, flatten([]string{r.group}, []string{r.resource}, names, r.verbs)...)
			}
			want := granted(t, "../../config/rbac/"+file)
			slices.Sort(want)
			slices.Sort(got)
			if difference := cmp.Diff(want, got); difference != "" {
				t.Errorf("permissions (-manifest +check):\n%s", difference)
			}
		})
	}
}

// granted lists the permissions of the roles in a file.
func granted(t *testing.T, file string) []string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	for {
		var role rbacv1.ClusterRole
		err := decoder.Decode(&role)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			all = append(all, flatten(rule.APIGroups, rule.Resources, rule.ResourceNames, rule.Verbs)...)
		}
	}
}

// flatten returns one line for each permission.
func flatten(groups, resources, names, verbs []string) []string {
	if len(names) == 0 {
		names = []string{"*"}
	}
	var all []string
	for _, group := range groups {
		for _, resource := range resources {
			for _, name := range names {
				for _, verb := range verbs {
					all = append(all, strings.Join([]string{group, resource, name, verb}, " "))
				}
			}
		}
	}
	return all
}

func TestKubernetesVersion(t *testing.T) {
	for minor, want := range map[string]outcome{"29": outcomeFailure, "30": outcomeOK, "36": outcomeOK, "33+": outcomeOK, "next": outcomeWarning} {
		c := &checker{version: &version.Info{Major: "1", Minor: minor, GitVersion: "v1." + minor}}
		if err := c.kubernetes(t.Context()); err != nil || c.checks[0].Outcome != want {
			t.Errorf("version 1.%s: got %+v, %v, want %s", minor, c.checks, err, want)
		}
	}
}

func TestTerminatorGate(t *testing.T) {
	for name, tc := range map[string]struct {
		arguments []string
		want      bool
	}{
		"no gates":                 {[]string{"--v=5"}, false},
		"other gates":              {[]string{"--feature-gates=AllBeta=true"}, false},
		"on":                       {[]string{"--feature-gates=AllBeta=true,SidecarTerminator=true"}, true},
		"one dash":                 {[]string{"-feature-gates=SidecarTerminator=true"}, true},
		"separate argument":        {[]string{"--feature-gates", "SidecarTerminator=true"}, true},
		"all alpha gates":          {[]string{"--feature-gates=AllAlpha=true,EnableExternalCerts=false"}, true},
		"all alpha gates but this": {[]string{"--feature-gates=SidecarTerminator=false,AllAlpha=true"}, false},
		"no value":                 {[]string{"--feature-gates"}, false},
	} {
		if got := terminatorGate([]corev1.Container{{Args: tc.arguments}}); got != tc.want {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}
