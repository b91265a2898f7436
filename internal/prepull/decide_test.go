// SPDX-License-Identifier: Apache-2.0

package prepull_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/imagelist"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/prepull"
	"github.com/sidecar-termination/operator/internal/resolve"
)

const image = "registry.example/quick-exit:v1"

// listed restricts images to those of another registry.
func listed(s *prepull.Situation) {
	entry, err := imagelist.ParseEntry("other.example/*")
	if err != nil {
		panic(err)
	}
	s.Images.Entries = []imagelist.Entry{entry}
}

// situation returns a namespaced policy with one sidecar that uses the operator's image. The cluster serves ImagePullJobs.
func situation(changes ...func(*prepull.Situation)) prepull.Situation {
	s := prepull.Situation{
		Policy: prepull.Policy{
			Ref:  resolve.PolicyRef{Kind: resolve.KindNamespaced, Namespace: "batch", Name: "mesh"},
			UID:  "4a1b",
			Spec: &v1alpha1.PolicySpec{Sidecars: []v1alpha1.Sidecar{{Name: "proxy"}}, PrePull: &v1alpha1.PrePull{}},
		},
		Namespace: "system", DefaultImage: image, Enabled: plan.EnabledModes{Image: true, PrePull: true}, Served: true,
	}
	for _, change := range changes {
		change(&s)
	}
	return s
}

func spec(change func(*v1alpha1.PolicySpec)) func(*prepull.Situation) {
	return func(s *prepull.Situation) { change(s.Policy.Spec) }
}

func sidecars(settings ...v1alpha1.TerminationSettings) func(*prepull.Situation) {
	return spec(func(p *v1alpha1.PolicySpec) {
		p.Sidecars = nil
		for i, s := range settings {
			p.Sidecars = append(p.Sidecars, v1alpha1.Sidecar{Name: fmt.Sprintf("c%d", i), TerminationSettings: s})
		}
	})
}

func prePull(change func(*v1alpha1.PrePull)) func(*prepull.Situation) {
	return spec(func(p *v1alpha1.PolicySpec) { change(p.PrePull) })
}

func ofCluster(s *prepull.Situation) {
	s.Policy.Ref = resolve.PolicyRef{Kind: resolve.KindCluster, Name: "mesh"}
}

func withoutPrePull(s *prepull.Situation) { s.Policy.Spec.PrePull = nil }

// existing returns the wanted job of the image with its status.
func existing(s prepull.Situation, image string, changes ...func(*prepull.Existing)) prepull.Existing {
	s.Existing = nil
	for _, job := range prepull.Decide(s).Create {
		if job.Image != image {
			continue
		}
		e := prepull.Existing{Namespace: job.Namespace, Name: job.Name, UID: types.UID("of " + image), Begun: true, Desired: 3, Succeeded: 3}
		for _, change := range changes {
			change(&e)
		}
		return e
	}
	panic("no job is wanted for " + image)
}

func nodes(desired, succeeded int32, failed ...string) func(*prepull.Existing) {
	return func(e *prepull.Existing) {
		e.Desired, e.Succeeded, e.Failed, e.FailedNodes = desired, succeeded, int32(len(failed)), failed
	}
}

// with adds the wanted jobs of the images to the existing ones.
func with(images []string, changes ...func(*prepull.Existing)) func(*prepull.Situation) {
	return func(s *prepull.Situation) {
		for _, image := range images {
			s.Existing = append(s.Existing, existing(*s, image, changes...))
		}
	}
}

func TestImagesOfPolicy(t *testing.T) {
	own := func(image string) v1alpha1.TerminationSettings { return v1alpha1.TerminationSettings{Image: image} }
	for name, tc := range map[string]struct {
		change func(*prepull.Situation)
		want   []string
	}{
		"no image in the policy: the operator's":                    {sidecars(own("")), []string{image}},
		"no image in the sidecar: the policy's":                     {spec(func(p *v1alpha1.PolicySpec) { p.Image = "b" }), []string{"b"}},
		"images of all sidecars, sorted":                            {sidecars(own("c"), own("a")), []string{"a", "c"}},
		"one image in two sidecars: once":                           {sidecars(own("a"), own("b"), own("a")), []string{"a", "b"}},
		"the policy's image is unused if every sidecar has its own": {func(s *prepull.Situation) { sidecars(own("a"))(s); s.Policy.Spec.Image = "b" }, []string{"a"}},
		"mainContainers: the policy's image":                        {spec(func(p *v1alpha1.PolicySpec) { p.Sidecars, p.Image = nil, "b" }), []string{"b"}},
		"mainContainers without an image: the operator's":           {spec(func(p *v1alpha1.PolicySpec) { p.Sidecars = nil }), []string{image}},
		"mode CRR with fallback":                                    {sidecars(v1alpha1.TerminationSettings{Mode: "CRR", Image: "a"}), []string{"a"}},
		"mode CRR without fallback":                                 {withFallback("Disabled", v1alpha1.TerminationSettings{Mode: "CRR", Image: "a"}, own("b")), []string{"b"}},
		"mode Auto without fallback":                                {withFallback("Disabled", v1alpha1.TerminationSettings{Mode: "Auto", Image: "a"}), []string{"a"}},
		"mode Image without fallback":                               {withFallback("Disabled", v1alpha1.TerminationSettings{Mode: "Image", Image: "a"}), []string{"a"}},
		"unknown mode with fallback":                                {sidecars(v1alpha1.TerminationSettings{Mode: "Freeze", Image: "a"}), []string{"a"}},
		"unknown mode without fallback":                             {withFallback("Disabled", v1alpha1.TerminationSettings{Mode: "Freeze", Image: "a"}, own("b")), []string{"b"}},
		"mode CRR with unknown fallback":                            {withFallback("Sometimes", v1alpha1.TerminationSettings{Mode: "CRR", Image: "a"}, own("b")), []string{"b"}},
		"policy with mode PodPhase without fallback":                {spec(func(p *v1alpha1.PolicySpec) { p.Mode, p.Fallback = "PodPhase", "Disabled" }), nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := situation(tc.change)
			if diff := cmp.Diff(tc.want, prepull.Images(s.Policy.Spec, s.DefaultImage)); diff != "" {
				t.Errorf("images (-want +got):\n%s", diff)
			}
		})
	}
}

// withFallback gives the policy sidecars with the settings, and the fallback.
func withFallback(fallback v1alpha1.Fallback, settings ...v1alpha1.TerminationSettings) func(*prepull.Situation) {
	return func(s *prepull.Situation) {
		sidecars(settings...)(s)
		s.Policy.Spec.Fallback = fallback
	}
}

func TestJobHasPolicySettings(t *testing.T) {
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "batch"}}
	sandbox := &v1alpha1.SandboxConfig{Labels: map[string]string{"tenant": "etl"}, Annotations: map[string]string{"snapshotter": "lazy"}}
	for name, tc := range map[string]struct {
		change    []func(*prepull.Situation)
		namespace string
		want      prepull.Pull
	}{
		"all nodes by default": {nil, "batch", prepull.Pull{Image: image}},
		"an empty selector means all nodes": {
			[]func(*prepull.Situation){prePull(func(p *v1alpha1.PrePull) { p.NodeSelector = &metav1.LabelSelector{} })}, "batch", prepull.Pull{Image: image},
		},
		"an empty sandboxConfig is omitted": {
			[]func(*prepull.Situation){prePull(func(p *v1alpha1.PrePull) { p.SandboxConfig = &v1alpha1.SandboxConfig{} })}, "batch", prepull.Pull{Image: image},
		},
		"selector, secrets and sandbox": {
			[]func(*prepull.Situation){prePull(func(p *v1alpha1.PrePull) {
				p.NodeSelector, p.PullSecrets, p.SandboxConfig = selector, []v1alpha1.SecretName{"b", "a"}, sandbox
			})}, "batch",
			prepull.Pull{Image: image, NodeSelector: selector, PullSecrets: []string{"a", "b"}, SandboxConfig: sandbox},
		},
		"a cluster policy's job is in the operator's namespace": {[]func(*prepull.Situation){ofCluster}, "system", prepull.Pull{Image: image}},
	} {
		t.Run(name, func(t *testing.T) {
			created := prepull.Decide(situation(tc.change...)).Create
			if len(created) != 1 {
				t.Fatalf("%d jobs are created, want 1", len(created))
			}
			if diff := cmp.Diff(tc.want, created[0].Pull); diff != "" {
				t.Errorf("job (-want +got):\n%s", diff)
			}
			if created[0].Namespace != tc.namespace {
				t.Errorf("the job is in namespace %s, want %s", created[0].Namespace, tc.namespace)
			}
		})
	}
}

// Every change makes another job, because OpenKruise does not apply every change to an existing one.
func TestChangedSettingsChangeJobName(t *testing.T) {
	names := map[string]string{}
	for what, change := range map[string]func(*prepull.Situation){
		"the unchanged policy": func(*prepull.Situation) {},
		"another policy":       func(s *prepull.Situation) { s.Policy.UID = "5c2d" },
		"another image":        func(s *prepull.Situation) { s.DefaultImage = "other" },
		"a selector": prePull(func(p *v1alpha1.PrePull) {
			p.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		}),
		"a secret":       prePull(func(p *v1alpha1.PrePull) { p.PullSecrets = []v1alpha1.SecretName{"a"} }),
		"another secret": prePull(func(p *v1alpha1.PrePull) { p.PullSecrets = []v1alpha1.SecretName{"b"} }),
		"a label of a sandbox": prePull(func(p *v1alpha1.PrePull) {
			p.SandboxConfig = &v1alpha1.SandboxConfig{Labels: map[string]string{"a": "b"}}
		}),
		"an annotation of a sandbox": prePull(func(p *v1alpha1.PrePull) {
			p.SandboxConfig = &v1alpha1.SandboxConfig{Annotations: map[string]string{"a": "b"}}
		}),
		"another value of a label": prePull(func(p *v1alpha1.PrePull) {
			p.SandboxConfig = &v1alpha1.SandboxConfig{Labels: map[string]string{"a": "c"}}
		}),
	} {
		name := prepull.Decide(situation(change)).Create[0].Name
		if other, taken := names[name]; taken {
			t.Errorf("%s and %s make the same job %s", what, other, name)
		}
		names[name] = what
	}
	secrets := func(names ...v1alpha1.SecretName) string {
		return prepull.Decide(situation(prePull(func(p *v1alpha1.PrePull) { p.PullSecrets = names }))).Create[0].Name
	}
	if secrets("a", "b") != secrets("b", "a") {
		t.Error("the order of secrets makes another job")
	}
}

func TestJobNamesAreValid(t *testing.T) {
	for _, policy := range []string{
		"a", "mesh.v1", strings.Repeat("a", 63), strings.Repeat("a", 253), strings.Repeat("a", 49) + ".-" + strings.Repeat("b", 100),
		strings.Repeat("a", 62) + "." + strings.Repeat("b", 100),
	} {
		job := prepull.Decide(situation(func(s *prepull.Situation) { s.Policy.Ref.Name = policy })).Create[0]
		if invalid := validation.IsDNS1123Subdomain(job.Name); len(invalid) > 0 || len(job.Name) > validation.DNS1123LabelMaxLength {
			t.Errorf("name %s of %d characters: %v", job.Name, len(job.Name), invalid)
		}
		if !strings.HasPrefix(job.Name, policy[:min(len(policy), 49)]) {
			t.Errorf("name %s does not contain policy %s", job.Name, policy)
		}
		if invalid := validation.IsValidLabelValue(prepull.LabelValue(policy)); len(invalid) > 0 {
			t.Errorf("label %s: %v", prepull.LabelValue(policy), invalid)
		}
	}
}

func TestCreateAndDeleteJobs(t *testing.T) {
	two := sidecars(v1alpha1.TerminationSettings{Image: "a"}, v1alpha1.TerminationSettings{Image: "b"})
	both := []string{"a", "b"}
	toOther := sidecars(v1alpha1.TerminationSettings{Image: "b"})
	for name, tc := range map[string]struct {
		change         []func(*prepull.Situation)
		create, delete []string // images
	}{
		"no job exists":                {[]func(*prepull.Situation){two}, both, nil},
		"every job exists":             {[]func(*prepull.Situation){two, with(both)}, nil, nil},
		"one job is missing":           {[]func(*prepull.Situation){two, with([]string{"b"})}, []string{"a"}, nil},
		"an image is no longer wanted": {[]func(*prepull.Situation){two, with(both), toOther}, nil, []string{"a"}},
		"the image changes":            {[]func(*prepull.Situation){with([]string{image}), toOther}, []string{"b"}, []string{image}},
		"prePull is removed":           {[]func(*prepull.Situation){two, with(both), withoutPrePull}, nil, both},
		"no prePull and no job":        {[]func(*prepull.Situation){withoutPrePull}, nil, nil},
		"the policy becomes DryRun":    {[]func(*prepull.Situation){with([]string{image}), spec(func(p *v1alpha1.PolicySpec) { p.Enforcement = "DryRun" })}, nil, []string{image}},
		"mode Image is disabled":       {[]func(*prepull.Situation){with([]string{image}), func(s *prepull.Situation) { s.Enabled.Image = false }}, nil, []string{image}},
		"the policy is being deleted":  {[]func(*prepull.Situation){with([]string{image}), func(s *prepull.Situation) { s.Policy.Deleted = true }}, nil, []string{image}},
		"the selector becomes invalid": {[]func(*prepull.Situation){with([]string{image}), prePull(func(p *v1alpha1.PrePull) {
			p.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b c"}}
		})}, nil, []string{image}},
		"a job is being deleted":           {[]func(*prepull.Situation){with([]string{image}, func(e *prepull.Existing) { e.Deleted = true })}, nil, nil},
		"an unwanted job is being deleted": {[]func(*prepull.Situation){with([]string{image}, func(e *prepull.Existing) { e.Deleted = true }), withoutPrePull}, nil, nil},
		"a denied job is retried":          {[]func(*prepull.Situation){func(s *prepull.Situation) { s.Denial = "no" }}, []string{image}, nil},
		"jobs are not served":              {[]func(*prepull.Situation){func(s *prepull.Situation) { s.Served = false }}, nil, nil},
		"pre-pulling is disabled":          {[]func(*prepull.Situation){with([]string{image}), func(s *prepull.Situation) { s.Enabled.PrePull = false }, withoutPrePull}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			decision := prepull.Decide(situation(tc.change...))
			var create, remove []string
			for _, job := range decision.Create {
				create = append(create, job.Image)
			}
			for _, e := range decision.Delete {
				remove = append(remove, strings.TrimPrefix(string(e.UID), "of "))
			}
			if diff := cmp.Diff(tc.create, create); diff != "" {
				t.Errorf("created (-want +got):\n%s", diff)
			}
			sorted := cmp.Transformer("sorted", func(s []string) map[string]bool {
				set := map[string]bool{}
				for _, e := range s {
					set[e] = true
				}
				return set
			})
			if diff := cmp.Diff(tc.delete, remove, sorted); diff != "" {
				t.Errorf("deleted (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReport(t *testing.T) {
	a, b := v1alpha1.TerminationSettings{Image: "a"}, v1alpha1.TerminationSettings{Image: "b"}
	one := []string{image}
	for name, tc := range map[string]struct {
		change []func(*prepull.Situation)
		want   *prepull.Report
	}{
		"nothing without prePull":               {[]func(*prepull.Situation){withoutPrePull}, nil},
		"nothing without prePull or OpenKruise": {[]func(*prepull.Situation){withoutPrePull, func(s *prepull.Situation) { s.Served = false }}, nil},
		"nothing for a policy being deleted":    {[]func(*prepull.Situation){func(s *prepull.Situation) { s.Policy.Deleted = true }}, nil},
		"the image is everywhere": {[]func(*prepull.Situation){with(one)},
			&prepull.Report{Holds: true, Reason: "PrePulled", Message: image + " is on 3 of 3 nodes"}},
		"two images are everywhere": {[]func(*prepull.Situation){sidecars(a, b), with([]string{"a", "b"})},
			&prepull.Report{Holds: true, Reason: "PrePulled", Message: "a is on 3 of 3 nodes; b is on 3 of 3 nodes"}},
		"many images are counted": {[]func(*prepull.Situation){
			sidecars(a, b, v1alpha1.TerminationSettings{Image: "c"}, v1alpha1.TerminationSettings{Image: "d"}), with([]string{"a", "b", "c", "d"})},
			&prepull.Report{Holds: true, Reason: "PrePulled", Message: "a is on 3 of 3 nodes; b is on 3 of 3 nodes; c is on 3 of 3 nodes; and 1 more"}},
		"the job does not exist yet": {nil, &prepull.Report{Reason: "PrePulling", Message: image + " is waiting for OpenKruise to start the ImagePullJob batch/mesh-HASH; if this persists, check that OpenKruise's manager runs"}},
		"Kruise has not processed the job": {[]func(*prepull.Situation){with(one, func(e *prepull.Existing) { *e = prepull.Existing{Namespace: e.Namespace, Name: e.Name} })},
			&prepull.Report{Reason: "PrePulling", Message: image + " is waiting for OpenKruise to start the ImagePullJob batch/mesh-HASH; if this persists, check that OpenKruise's manager runs"}},
		"the job is about to be recreated": {[]func(*prepull.Situation){with(one, func(e *prepull.Existing) { e.Deleted = true })},
			&prepull.Report{Reason: "PrePulling", Message: image + " is waiting for OpenKruise to start the ImagePullJob batch/mesh-HASH; if this persists, check that OpenKruise's manager runs"}},
		"only images that are missing on nodes are reported": {
			[]func(*prepull.Situation){sidecars(a, b), with([]string{"a"}), with([]string{"b"}, nodes(3, 1))},
			&prepull.Report{Reason: "PrePulling", Message: "b is on 1 of 3 nodes"}},
		"no node is selected": {[]func(*prepull.Situation){with(one, nodes(0, 0))},
			&prepull.Report{Reason: "PrePulling", Message: image + " has no node to be pulled to: OpenKruise knows no node that spec.prePull.nodeSelector selects; correct it, or run OpenKruise's daemon on these nodes"}},
		"failed nodes are reported before pulls in progress": {
			[]func(*prepull.Situation){sidecars(a, b), with([]string{"a"}, nodes(6, 1)), with([]string{"b"}, nodes(6, 1, "n4", "n1", "n2", "n3"))},
			&prepull.Report{Reason: "PrePullFailed", Message: "b is on 1 of 6 nodes and could not be pulled to n1, n2, n3 and 1 more. The cause is in the events of each " +
				"job (kubectl -n batch describe imagepulljob mesh-HASH). Correct image or spec.prePull of the policy. OpenKruise retries after a day. To retry at once, delete the job; the operator recreates it"}},
		"OpenKruise is not installed": {[]func(*prepull.Situation){func(s *prepull.Situation) { s.Served = false }},
			&prepull.Report{Reason: "PrePullUnavailable", Message: "OpenKruise does not serve ImagePullJobs in this cluster; install it, or remove prePull. Nodes pull images when they need them"}},
		"OpenKruise denies the job": {[]func(*prepull.Situation){func(s *prepull.Situation) { s.Denial = "the gate is off" }},
			&prepull.Report{Reason: "PrePullUnavailable", Message: "the gate is off. Turn on OpenKruise's feature gate ImagePullJobGate, or correct what the message names, or remove spec.prePull from the policy. " +
				"Until then nodes pull images when they need them"}},
		"an earlier denial does not count once the job exists": {[]func(*prepull.Situation){with(one), func(s *prepull.Situation) { s.Denial = "the gate is off" }},
			&prepull.Report{Holds: true, Reason: "PrePulled", Message: image + " is on 3 of 3 nodes"}},
		"pre-pulling is disabled": {[]func(*prepull.Situation){func(s *prepull.Situation) { s.Enabled.PrePull = false }},
			&prepull.Report{Reason: "PrePullUnavailable", Message: "the operator runs with --pre-pull=Disabled; nodes pull images when they need them"}},
		"the operator watches single namespaces": {[]func(*prepull.Situation){func(s *prepull.Situation) { s.Served, s.NamespacesOnly = false, true }},
			&prepull.Report{Reason: "PrePullUnavailable", Message: "the operator runs with --watch-namespaces and does not use OpenKruise; nodes pull images when they need them"}},
		"mode Image is disabled": {[]func(*prepull.Situation){func(s *prepull.Situation) { s.Enabled.Image = false }},
			&prepull.Report{Reason: "ModeDisabled", Message: "no image is needed, because the operator runs with --image-swap=Disabled; remove prePull"}},
		"a DryRun policy pulls nothing": {[]func(*prepull.Situation){spec(func(p *v1alpha1.PolicySpec) { p.Enforcement = "DryRun" })},
			&prepull.Report{Reason: "DryRun", Message: "nothing is pulled; set enforcement to Enforce to act"}},
		"no image is needed": {[]func(*prepull.Situation){spec(func(p *v1alpha1.PolicySpec) { p.Mode, p.Fallback = "CRR", "Disabled" })},
			&prepull.Report{Reason: "PrePullUnavailable", Message: "no image is needed, because every sidecar declares another mode than Image with fallback Disabled; remove prePull"}},
		"the policy's image is not allowed": {[]func(*prepull.Situation){sidecars(a), listed},
			&prepull.Report{Reason: "ImageNotAllowed", Message: "nothing is pulled, because quick-exit image a is not allowed: it is not on the list of the operator's administrator; use one that --allowed-quick-exit-image of the operator permits"}},
		"the operator's image is always allowed": {[]func(*prepull.Situation){listed, with(one)},
			&prepull.Report{Holds: true, Reason: "PrePulled", Message: image + " is on 3 of 3 nodes"}},
		"no image at any level": {[]func(*prepull.Situation){func(s *prepull.Situation) { s.DefaultImage = "" }},
			&prepull.Report{Reason: "NoQuickExitImage", Message: "no quick-exit image is set; set image in the policy, or the operator's --quick-exit-image. Images of environment variables are not pulled"}},
		"the operator does not know its namespace": {[]func(*prepull.Situation){ofCluster, func(s *prepull.Situation) { s.Namespace = "" }},
			&prepull.Report{Reason: "PrePullUnavailable", Message: "the operator does not know its namespace, where the ImagePullJobs of cluster policies live; run it in the cluster, or set its --leader-election-namespace"}},
		"the node selector is invalid": {[]func(*prepull.Situation){prePull(func(p *v1alpha1.PrePull) {
			p.NodeSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Equals"}}}
		})}, &prepull.Report{Reason: "InvalidSelector", Message: `parse spec.prePull.nodeSelector: "Equals" is not a valid label selector operator`}},
	} {
		t.Run(name, func(t *testing.T) {
			s := situation(tc.change...)
			decision := prepull.Decide(s)
			got := decision.Report
			if got != nil {
				for _, e := range s.Existing {
					got.Message = strings.ReplaceAll(got.Message, e.Name, "mesh-HASH")
				}
				for _, job := range decision.Create {
					got.Message = strings.ReplaceAll(got.Message, job.Name, "mesh-HASH")
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("report (-want +got):\n%s", diff)
			}
		})
	}
}

// The operator finds its jobs again after a restart or an upgrade.
func TestJobNameIsStable(t *testing.T) {
	s := situation(prePull(func(p *v1alpha1.PrePull) {
		p.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "batch", "arch": "arm64"}}
		p.PullSecrets = []v1alpha1.SecretName{"registry"}
		p.SandboxConfig = &v1alpha1.SandboxConfig{Labels: map[string]string{"b": "1", "a": "2"}}
	}))
	if got, want := prepull.Decide(s).Create[0].Name, "mesh-24cb9458a470"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
