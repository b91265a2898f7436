// SPDX-License-Identifier: Apache-2.0

//go:build integration

package v1alpha1_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/internal/quickexit"
)

// valid is a spec to which each case adds one mistake. withImage is a spec that may have quickExitPaths.
const (
	valid     = "podSelector: {}\nsidecars: [{name: proxy}]\n"
	withImage = valid + "image: quick-exit:v1\n"
)

func TestInvalidPolicies(t *testing.T) {
	const (
		exactlyOne  = "set sidecars, includeInjected or both, or else mainContainers"
		noRespect   = "exitCodePolicy: Respect cannot be combined with mode: PodPhase"
		noReference = "image must be an image reference"
		noPath      = "an entry of quickExitPaths must be an absolute path in its shortest form"
		ofRuntime   = "an entry of quickExitPaths cannot be a path that container runtimes mount over the image"
		stars       = "at most three *"
		noImage     = "quickExitPaths describes the image at the same level: set image as well"
	)
	long := strings.Repeat("a", 64)
	for name, rejected := range map[string]struct {
		spec, field, message string
	}{
		"neither sidecars nor main containers are named":  {"podSelector: {}", "spec", exactlyOne},
		"both sidecars and main containers are named":     {valid + "mainContainers: [main]", "spec", exactlyOne},
		"main containers and injected ones are named":     {"mainContainers: [main]\nincludeInjected: true", "spec", exactlyOne},
		"injected containers are excluded":                {"includeInjected: false", "spec", exactlyOne},
		"the list of sidecars is empty":                   {"podSelector: {}\nsidecars: []", "spec.sidecars", "at least 1 item"},
		"the list of main containers is empty":            {"podSelector: {}\nmainContainers: []", "spec.mainContainers", "at least 1 item"},
		"there are more than 32 sidecars":                 {"podSelector: {}\nsidecars: " + sidecars(33), "spec.sidecars", "at most 32 items"},
		"there are more than 32 main containers":          {"podSelector: {}\nmainContainers: " + names(33), "spec.mainContainers", "at most 32 items"},
		"a sidecar is named twice":                        {"podSelector: {}\nsidecars: [{name: a}, {name: a}]", "spec.sidecars[1]", "Duplicate value"},
		"a main container is named twice":                 {"podSelector: {}\nmainContainers: [a, a]", "spec.mainContainers[1]", "Duplicate value"},
		"a sidecar has no name":                           {"podSelector: {}\nsidecars: [{mode: CRR}]", "spec.sidecars[0].name", "Required value"},
		"a sidecar's name is empty":                       {"podSelector: {}\nsidecars: [{name: ''}]", "spec.sidecars[0].name", "at least 1 char"},
		"a sidecar's name is too long":                    {"podSelector: {}\nsidecars: [{name: " + long + "}]", "spec.sidecars[0].name", "Too long"},
		"a sidecar's name is not a container name":        {"podSelector: {}\nsidecars: [{name: Proxy_1}]", "spec.sidecars[0].name", "should match"},
		"a main container's name is empty":                {"podSelector: {}\nmainContainers: ['']", "spec.mainContainers[0]", "at least 1 char"},
		"a main container's name is too long":             {"podSelector: {}\nmainContainers: [" + long + "]", "spec.mainContainers[0]", "Too long"},
		"a main container's name is not a container name": {"podSelector: {}\nmainContainers: [main-]", "spec.mainContainers[0]", "should match"},
		"a main container's name is a pattern":            {"podSelector: {}\nmainContainers: [main*]", "spec.mainContainers[0]", "should match"},
		"a sidecar's name is a star":                      {"podSelector: {}\nsidecars: [{name: '*'}]", "spec.sidecars[0].name", stars},
		"a sidecar's name has four stars":                 {"podSelector: {}\nsidecars: [{name: '*a*b*c*'}]", "spec.sidecars[0].name", stars},

		"the pod selector has more than 64 labels":      {"sidecars: [{name: proxy}]\npodSelector: {matchLabels: " + labels(65) + "}", "spec.podSelector", "podSelector may hold at most 64"},
		"the pod selector has more than 64 expressions": {"sidecars: [{name: proxy}]\npodSelector: {matchExpressions: " + expressions(65) + "}", "spec.podSelector", "podSelector may hold at most 64"},

		"the mode is unknown":                       {valid + "mode: Kill", "spec.mode", "Unsupported value"},
		"the mode of a sidecar is unknown":          {"podSelector: {}\nsidecars: [{name: a, mode: crr}]", "spec.sidecars[0].mode", "Unsupported value"},
		"exitCodePolicy is unknown":                 {valid + "exitCodePolicy: Sometimes", "spec.exitCodePolicy", "Unsupported value"},
		"exitCodePolicy of a sidecar is unknown":    {"podSelector: {}\nsidecars: [{name: a, exitCodePolicy: 'true'}]", "spec.sidecars[0].exitCodePolicy", "Unsupported value"},
		"fallback is unknown":                       {valid + "fallback: Never", "spec.fallback", "Unsupported value"},
		"enforcement is unknown":                    {valid + "enforcement: Audit", "spec.enforcement", "Unsupported value"},
		"the image is not a reference":              {valid + "image: 'quick exit:v1'", "spec.image", noReference},
		"the image of a sidecar is not a reference": {"podSelector: {}\nsidecars: [{name: a, image: '-x'}]", "spec.sidecars[0].image", noReference},
		"the image is longer than 512 characters":   {valid + "image: " + strings.Repeat("a", 513), "spec.image", "Too long"},

		"a quickExitPaths entry is a relative path":            {withImage + "quickExitPaths: [/a, bin/x]", "spec.quickExitPaths[1]", noPath},
		"a quickExitPaths entry is empty":                      {withImage + "quickExitPaths: ['']", "spec.quickExitPaths[0]", noPath},
		"a quickExitPaths entry contains several":              {withImage + "quickExitPaths: ['default,/app/server']", "spec.quickExitPaths[0]", noPath},
		"a quickExitPaths entry has a control character":       {withImage + `quickExitPaths: ["/app/a\nb"]`, "spec.quickExitPaths[0]", noPath},
		"a quickExitPaths entry of a sidecar is not a path":    {"podSelector: {}\nsidecars: [{name: a, image: x, quickExitPaths: [all]}]", "spec.sidecars[0].quickExitPaths[0]", noPath},
		"a quickExitPaths entry is a path of the runtime":      {withImage + "quickExitPaths: [/proc/1/exe]", "spec.quickExitPaths[0]", ofRuntime},
		"a quickExitPaths entry is longer than 256":            {withImage + "quickExitPaths: [/" + strings.Repeat("a", 256) + "]", "spec.quickExitPaths[0]", "Too long"},
		"the pod selector has more than 64 values":             {"sidecars: [{name: proxy}]\npodSelector: {matchExpressions: [{key: k, operator: In, values: " + list(65, "v%d") + "}]}", "spec.podSelector", "podSelector may hold at most 64 values"},
		"the node selector of prePull has more than 64 values": {valid + "prePull: {nodeLabelSelector: {matchExpressions: [{key: k, operator: In, values: " + list(65, "v%d") + "}]}}", "spec.prePull.nodeLabelSelector", "nodeLabelSelector may hold at most 64 values"},
		"there are more than 64 entries of quickExitPaths":     {withImage + "quickExitPaths: " + list(65, "/c%d"), "spec.quickExitPaths", "at most 64 items"},
		"quickExitPaths without an image":                      {valid + "quickExitPaths: [default]", "spec.quickExitPaths", noImage},
		"quickExitPaths with an empty image":                   {valid + "image: ''\nquickExitPaths: [default]", "spec.quickExitPaths", noImage},
		"the policy has quickExitPaths, the sidecar the image": {"podSelector: {}\nquickExitPaths: [default]\nsidecars: [{name: a, image: x}]", "spec.quickExitPaths", noImage},
		"the sidecar has quickExitPaths, the policy the image": {"podSelector: {}\nimage: x\nsidecars: [{name: a, quickExitPaths: [default]}]", "spec.sidecars[0].quickExitPaths", noImage},

		"drainSeconds is negative":                        {valid + "drainSeconds: -1", "spec.drainSeconds", "greater than or equal to 0"},
		"drainSeconds is more than a day":                 {valid + "drainSeconds: 86401", "spec.drainSeconds", "less than or equal to 86400"},
		"drainSeconds of a sidecar is negative":           {"podSelector: {}\nsidecars: [{name: a, drainSeconds: -1}]", "spec.sidecars[0].drainSeconds", "greater than or equal to 0"},
		"terminationDeadlineSeconds is less than 3":       {valid + "terminationDeadlineSeconds: 2", "spec.terminationDeadlineSeconds", "greater than or equal to 3"},
		"terminationDeadlineSeconds is more than an hour": {valid + "terminationDeadlineSeconds: 3601", "spec.terminationDeadlineSeconds", "less than or equal to 3600"},
		"the priority is beyond the upper bound":          {valid + "priority: 1000001", "spec.priority", "less than or equal to"},
		"the priority is beyond the lower bound":          {valid + "priority: -1000001", "spec.priority", "greater than or equal to"},
		"mode PodPhase with Respect":                      {valid + "mode: PodPhase\nexitCodePolicy: Respect", "spec.exitCodePolicy", noRespect},
		"a sidecar's mode PodPhase with its own Respect":  {"podSelector: {}\nsidecars: [{name: a}, {name: b, mode: PodPhase, exitCodePolicy: Respect}]", "spec.sidecars[1].exitCodePolicy", noRespect},
		"a sidecar's mode PodPhase with the policy's Respect": {
			"podSelector: {}\nsidecars: [{name: a, mode: PodPhase}]\nexitCodePolicy: Respect", "spec.sidecars", "must set exitCodePolicy: Ignore where the policy sets Respect"},
		"a sidecar's Respect with the policy's mode PodPhase": {
			"podSelector: {}\nsidecars: [{name: a, exitCodePolicy: Respect}]\nmode: PodPhase", "spec.sidecars", "must set another mode where the policy sets mode: PodPhase"},

		"the node selector of prePull has more than 64 labels":      {valid + "prePull: {nodeLabelSelector: {matchLabels: " + labels(65) + "}}", "spec.prePull.nodeLabelSelector", "nodeLabelSelector may hold at most 64"},
		"the node selector of prePull has more than 64 expressions": {valid + "prePull: {nodeLabelSelector: {matchExpressions: " + expressions(65) + "}}", "spec.prePull.nodeLabelSelector", "nodeLabelSelector may hold at most 64"},
		"there are more than 16 pull secrets":                       {valid + "prePull: {imagePullSecrets: " + sidecars(17) + "}", "spec.prePull.imagePullSecrets", "at most 16 items"},
		"a pull secret is named twice":                              {valid + "prePull: {imagePullSecrets: [{name: a}, {name: a}]}", "spec.prePull.imagePullSecrets[1]", "Duplicate value"},
		"the name of a pull secret is empty":                        {valid + "prePull: {imagePullSecrets: [{name: ''}]}", "spec.prePull.imagePullSecrets[0].name", "at least 1 char"},
		"the name of a pull secret is not an object name":           {valid + "prePull: {imagePullSecrets: [{name: other/registry}]}", "spec.prePull.imagePullSecrets[0].name", "should match"},
	} {
		for _, kind := range kinds {
			t.Run(name+"/"+kind, func(t *testing.T) {
				wantRejected(t, newClient(t).Create(t.Context(), object(t, kind, rejected.spec)), rejected.field, rejected.message)
			})
		}
	}
}

func TestNamespaceSelectorLimits(t *testing.T) {
	const message = "namespaceSelector may hold at most 64"
	for name, selector := range map[string]string{
		"labels":      "{matchLabels: " + labels(65) + "}",
		"expressions": "{matchExpressions: " + expressions(65) + "}",
		"values":      "{matchExpressions: [{key: k, operator: In, values: " + list(65, "v%d") + "}]}",
	} {
		t.Run(name, func(t *testing.T) {
			policy := object(t, "ClusterSidecarTerminationPolicy", valid+"namespaceSelector: "+selector)
			wantRejected(t, newClient(t).Create(t.Context(), policy), "spec.namespaceSelector", message)
		})
	}
}

func TestNamespaceSelectorIsClusterOnly(t *testing.T) {
	for _, field := range []string{"namespaceSelector: {}", "namespace: other", "namespaces: [other]"} {
		err := newClient(t).Create(t.Context(), object(t, "SidecarTerminationPolicy", valid+field))
		unknown := fmt.Sprintf("unknown field %q", "spec."+strings.SplitN(field, ":", 2)[0])
		if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), unknown) {
			t.Errorf("%s: got %v, want %s", field, err, unknown)
		}
	}
}

func TestValidPolicies(t *testing.T) {
	for name, spec := range map[string]string{
		"the smallest spec":                                  valid,
		"main containers":                                    "podSelector: {}\nmainContainers: [main, load]",
		"injected containers":                                "includeInjected: true",
		"sidecars and injected containers":                   valid + "includeInjected: true",
		"no pod selector":                                    "sidecars: [{name: proxy}]",
		"patterns":                                           "sidecars: [{name: csql-*}, {name: '*-proxy'}, {name: 'a*b*c*'}]",
		"every mode":                                         "podSelector: {}\nsidecars: [{name: a, mode: Auto}, {name: b, mode: CRR}, {name: c, mode: Image}, {name: d, mode: PodPhase}]",
		"every setting of a policy":                          valid + "mode: Image\nimage: registry.example:5000/team/quick-exit@sha256:" + strings.Repeat("0", 64) + "\nexitCodePolicy: Respect\ndrainSeconds: 86400\nterminationDeadlineSeconds: 3600\nfallback: Disabled\nenforcement: DryRun\npriority: -1000000",
		"every setting of a sidecar":                         "podSelector: {}\nsidecars: [{name: a, mode: Image, image: 'quick-exit:v1', exitCodePolicy: Respect, drainSeconds: 0}]",
		"an empty image":                                     valid + "image: ''",
		"quickExitPaths of every kind":                       withImage + "quickExitPaths: [default, default, '*', '/opt/my app,v2', /.hidden/..b/c...]",
		"quickExitPaths of a sidecar":                        "podSelector: {}\nsidecars: [{name: a, image: x, quickExitPaths: [/app/server]}]",
		"neither quickExitPaths nor an image":                valid + "quickExitPaths: []",
		"the most and longest quickExitPaths":                "podSelector: {}\nimage: x\nquickExitPaths: " + longPaths + "\nsidecars: " + list(32, "{name: c%d, image: x, quickExitPaths: "+longPaths+"}"),
		"mode PodPhase with Ignore":                          valid + "mode: PodPhase\nexitCodePolicy: Ignore",
		"mode PodPhase with Ignore in a policy with Respect": "podSelector: {}\nsidecars: [{name: a, mode: PodPhase, exitCodePolicy: Ignore}]\nexitCodePolicy: Respect",
		"the most sidecars":                                  "podSelector: {}\nsidecars: " + sidecars(32),
		"the most main containers":                           "podSelector: {}\nmainContainers: " + names(32),
		"the largest pod selector":                           "sidecars: [{name: a}]\npodSelector: {matchLabels: " + labels(64) + ", matchExpressions: " + expressions(64) + "}",
		"the most values of a selector":                      "sidecars: [{name: a}]\npodSelector: {matchExpressions: [{key: k, operator: In, values: " + list(64, "v%d") + "}]}",
		"the longest container name":                         "podSelector: {}\nsidecars: [{name: " + strings.Repeat("a", 63) + "}]",
		"the highest priority":                               valid + "priority: 1000000",
		"the longest image reference":                        valid + "image: " + strings.Repeat("a", 512),
		"empty prePull":                                      valid + "prePull: {}",
		"prePull with every field":                           valid + "prePull: {nodeLabelSelector: {matchLabels: " + labels(64) + "}, imagePullSecrets: " + sidecars(16) + "}",
	} {
		for _, kind := range kinds {
			t.Run(name+"/"+kind, func(t *testing.T) {
				if err := newClient(t).Create(t.Context(), object(t, kind, spec)); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// The API server must accept exactly the entries that the operator considers valid.
func TestQuickExitPathsMatchOperator(t *testing.T) {
	for _, entry := range []string{
		"default", "*", "/", "//", "/a", "/a/", "/a//b", "/a/b", "/.", "/..", "/a/.", "/a/..", "/./a", "/../a", "/a/./b", "/a/../b", "/.a", "/..a", "/a./b..", "/...",
		"", "a", "./a", "*.*", "**", "Default", "/*", "/a b", "/\u00e9\u4e16", "/dev", "/dev/null", "/device", "/proc", "/proc/1", "/processes", "/sys/x", "/system",
		"/etc/hosts", "/etc/hosts/x", "/etc/hosts.allow", "/etc/hostname", "/etc/resolv.conf", "/etc/resolvXconf", "/etc", "/a/proc/1",
	} {
		t.Run(strings.ReplaceAll(entry, "/", "|"), func(t *testing.T) {
			policy := object(t, "SidecarTerminationPolicy", withImage)
			policy.Object["spec"].(map[string]any)["quickExitPaths"] = []any{entry}
			err := newClient(t).Create(t.Context(), policy)
			if want := quickexit.ValidateEntries([]string{entry}); (err == nil) != (want == nil) || err != nil && !apierrors.IsInvalid(err) {
				t.Errorf("%q: the API server says %v, and the operator %v", entry, err, want)
			}
		})
	}
}

// wantRejected checks that the server rejected the field with the message.
func wantRejected(t *testing.T, err error, field, message string) {
	t.Helper()
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsInvalid(err) {
		t.Fatalf("got %v, want the error Invalid", err)
	}
	var causes []metav1.StatusCause
	if details := status.Status().Details; details != nil {
		causes = details.Causes
	}
	for _, cause := range causes {
		if cause.Field == field && strings.Contains(cause.Message, message) {
			return
		}
	}
	t.Errorf("no cause has field %q and message %q: %+v", field, message, causes)
}

// longPaths is the longest list of the longest paths.
var longPaths = list(64, "/%0255d")

func sidecars(n int) string    { return list(n, "{name: c%d}") }
func names(n int) string       { return list(n, "c%d") }
func expressions(n int) string { return list(n, "{key: k%d, operator: Exists}") }

func labels(n int) string {
	return "{" + strings.Trim(list(n, "k%d: v"), "[]") + "}"
}

// list returns a YAML list of n different elements.
func list(n int, element string) string {
	var elements []string
	for i := range n {
		elements = append(elements, fmt.Sprintf(element, i))
	}
	return "[" + strings.Join(elements, ", ") + "]"
}
