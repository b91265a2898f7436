// SPDX-License-Identifier: Apache-2.0

package prepull_test

import (
	"fmt"
	"slices"
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
)

const image = "registry.example/quick-exit:v1"

// listed restricts images to those of another registry.
func listed(s *prepull.Situation) {
	entry, err := imagelist.ParseEntry("other.example/*")
	if err != nil {
		panic(err)
	}
	s.Capabilities.Images.Entries = []imagelist.Entry{entry}
}

// situation returns a namespaced policy with one sidecar that uses the operator's image. The cluster serves ImagePullJobs.
func situation(changes ...func(*prepull.Situation)) prepull.Situation {
	policy := &v1alpha1.SidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "batch", Name: "mesh", UID: "4a1b"}}
	policy.Spec.Sidecars, policy.Spec.PrePull = []v1alpha1.Sidecar{{Name: "proxy"}}, &v1alpha1.PrePull{}
	s := prepull.Situation{
		Policy: policy, Namespace: "system", DefaultImage: image, Served: true,
		Capabilities: plan.Capabilities{EnabledModes: plan.EnabledModes{Image: true, PrePull: true}},
	}
	for _, change := range changes {
		change(&s)
	}
	return s
}

func spec(change func(*v1alpha1.PolicySpec)) func(*prepull.Situation) {
	return func(s *prepull.Situation) {
		spec, _ := s.Policy.Parts()
		change(spec)
	}
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
	spec, _ := s.Policy.Parts()
	s.Policy = &v1alpha1.ClusterSidecarTerminationPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "mesh"}, Spec: v1alpha1.ClusterSidecarTerminationPolicySpec{PolicySpec: *spec},
	}
}

var withoutPrePull = spec(func(p *v1alpha1.PolicySpec) { p.PrePull = nil })

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
		"no image in the policy: the operator's": {sidecars(own("")), []string{image}},
		"no image in the sidecar: the policy's":  {spec(func(p *v1alpha1.PolicySpec) { p.Image = "b" }), []string{"b"}},
		"images of all sidecars, sorted":         {sidecars(own("c"), own("a")), []string{"a", "c"}},
		"one image in two sidecars: once":        {sidecars(own("a"), own("b"), own("a")), []string{"a", "b"}},
		"the policy's image is unused if every sidecar has its own": {spec(func(p *v1alpha1.PolicySpec) {
			p.Sidecars[0].Image, p.Image = "a", "b"
		}), []string{"a"}},
		"mainContainers: the policy's image":              {spec(func(p *v1alpha1.PolicySpec) { p.Sidecars, p.Image = nil, "b" }), []string{"b"}},
		"mainContainers without an image: the operator's": {spec(func(p *v1alpha1.PolicySpec) { p.Sidecars = nil }), []string{image}},
		"mode CRR with fallback":                          {sidecars(v1alpha1.TerminationSettings{Mode: "CRR", Image: "a"}), []string{"a"}},
		"mode CRR without fallback":                       {withFallback("Disabled", v1alpha1.TerminationSettings{Mode: "CRR"}, own("b")), []string{"b"}},
		"mode CRR without fallback, with an image":        {withFallback("Disabled", v1alpha1.TerminationSettings{Mode: "CRR", Image: "a"}), []string{"a"}},
		"mode Auto without fallback":                      {withFallback("Disabled", v1alpha1.TerminationSettings{Mode: "Auto", Image: "a"}), []string{"a"}},
		"mode Image without fallback":                     {withFallback("Disabled", v1alpha1.TerminationSettings{Mode: "Image", Image: "a"}), []string{"a"}},
		"unknown mode with fallback":                      {sidecars(v1alpha1.TerminationSettings{Mode: "Freeze", Image: "a"}), []string{"a"}},
		"unknown mode without fallback":                   {withFallback("Disabled", v1alpha1.TerminationSettings{Mode: "Freeze"}, own("b")), []string{"b"}},
		"mode CRR with unknown fallback":                  {withFallback("Sometimes", v1alpha1.TerminationSettings{Mode: "CRR"}, own("b")), []string{"b", image}},
		"injected containers: the policy's image": {func(s *prepull.Situation) {
			withFallback("Disabled", v1alpha1.TerminationSettings{Mode: "CRR"})(s)
			spec(func(p *v1alpha1.PolicySpec) { p.IncludeInjected, p.Image = true, "b" })(s)
		}, []string{"b"}},
		"policy with mode PodPhase without fallback": {spec(func(p *v1alpha1.PolicySpec) { p.Mode, p.Fallback = "PodPhase", "Disabled" }), nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := situation(tc.change)
			spec, _ := s.Policy.Parts()
			if diff := cmp.Diff(tc.want, prepull.Images(spec, s.DefaultImage)); diff != "" {
				t.Errorf("images (-want +got):\n%s", diff)
			}
		})
	}
}

// withFallback gives the policy sidecars with the settings, and the fallback.
func withFallback(fallback v1alpha1.Fallback, settings ...v1alpha1.TerminationSettings) func(*prepull.Situation) {
	return func(s *prepull.Situation) {
		sidecars(settings...)(s)
		spec(func(p *v1alpha1.PolicySpec) { p.Fallback = fallback })(s)
	}
}

func TestJobHasPolicySettings(t *testing.T) {
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "batch"}}
	for name, tc := range map[string]struct {
		change    []func(*prepull.Situation)
		namespace string
		want      prepull.Pull
	}{
		"all nodes by default": {nil, "batch", prepull.Pull{Image: image}},
		"an empty selector means all nodes": {
			[]func(*prepull.Situation){prePull(func(p *v1alpha1.PrePull) { p.NodeLabelSelector = &metav1.LabelSelector{} })}, "batch", prepull.Pull{Image: image},
		},
		"selector and secrets": {
			[]func(*prepull.Situation){prePull(func(p *v1alpha1.PrePull) {
				p.NodeLabelSelector, p.ImagePullSecrets = selector, []v1alpha1.SecretReference{{Name: "b"}, {Name: "a"}}
			})}, "batch",
			prepull.Pull{Image: image, NodeSelector: selector, PullSecrets: []string{"a", "b"}},
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
		"another policy":       func(s *prepull.Situation) { s.Policy.SetUID("5c2d") },
		"another image":        func(s *prepull.Situation) { s.DefaultImage = "other" },
		"a selector": prePull(func(p *v1alpha1.PrePull) {
			p.NodeLabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		}),
		"a secret":       prePull(func(p *v1alpha1.PrePull) { p.ImagePullSecrets = []v1alpha1.SecretReference{{Name: "a"}} }),
		"another secret": prePull(func(p *v1alpha1.PrePull) { p.ImagePullSecrets = []v1alpha1.SecretReference{{Name: "b"}} }),
	} {
		name := prepull.Decide(situation(change)).Create[0].Name
		if other, taken := names[name]; taken {
			t.Errorf("%s and %s make the same job %s", what, other, name)
		}
		names[name] = what
	}
	secrets := func(names ...v1alpha1.SecretReference) string {
		return prepull.Decide(situation(prePull(func(p *v1alpha1.PrePull) { p.ImagePullSecrets = names }))).Create[0].Name
	}
	a, b := v1alpha1.SecretReference{Name: "a"}, v1alpha1.SecretReference{Name: "b"}
	if secrets(a, b) != secrets(b, a) {
		t.Error("the order of secrets makes another job")
	}
}

func TestJobNamesAreValid(t *testing.T) {
	for _, policy := range []string{
		"a", "mesh.v1", strings.Repeat("a", 63), strings.Repeat("a", 253), strings.Repeat("a", 49) + ".-" + strings.Repeat("b", 100),
		strings.Repeat("a", 62) + "." + strings.Repeat("b", 100),
	} {
		job := prepull.Decide(situation(func(s *prepull.Situation) { s.Policy.SetName(policy) })).Create[0]
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

func TestDecide(t *testing.T) {
	type changes = []func(*prepull.Situation)
	a, b := v1alpha1.TerminationSettings{Image: "a"}, v1alpha1.TerminationSettings{Image: "b"}
	one, both := []string{image}, []string{"a", "b"}
	notServed := func(s *prepull.Situation) { s.Served = false }
	disabled := func(s *prepull.Situation) { s.Capabilities.PrePull = false }
	denied := func(s *prepull.Situation) { s.Denial = "the gate is off" }
	policyDeleted := func(s *prepull.Situation) { s.Policy.SetDeletionTimestamp(&metav1.Time{}) }
	jobDeleted := func(e *prepull.Existing) { e.Deleted = true }
	everywhere := &prepull.Report{Holds: true, Reason: "PrePulled", Message: image + " is on 3 of 3 nodes"}
	bothEverywhere := &prepull.Report{Holds: true, Reason: "PrePulled", Message: "a is on 3 of 3 nodes; b is on 3 of 3 nodes"}
	says := func(reason v1alpha1.Reason, message string) *prepull.Report {
		return &prepull.Report{Reason: reason, Message: message}
	}
	waits := func(image string) string {
		return image + " is waiting for OpenKruise to start the ImagePullJob batch/mesh-HASH; if this persists, check that OpenKruise's manager runs"
	}
	for name, tc := range map[string]struct {
		change         changes
		create, delete []string // images
		report         *prepull.Report
	}{
		"no job exists":                    {nil, one, nil, says("PrePulling", waits(image))},
		"no job of two exists":             {changes{sidecars(a, b)}, both, nil, says("PrePulling", waits("a")+"; "+waits("b"))},
		"every job exists":                 {changes{sidecars(a, b), with(both)}, nil, nil, bothEverywhere},
		"one job is missing":               {changes{sidecars(a, b), with([]string{"b"})}, []string{"a"}, nil, says("PrePulling", waits("a"))},
		"an image is no longer wanted":     {changes{sidecars(a, b), with(both), sidecars(b)}, nil, []string{"a"}, &prepull.Report{Holds: true, Reason: "PrePulled", Message: "b is on 3 of 3 nodes"}},
		"the image changes":                {changes{with(one), sidecars(b)}, []string{"b"}, one, says("PrePulling", waits("b"))},
		"prePull is removed":               {changes{sidecars(a, b), with(both), withoutPrePull}, nil, both, nil},
		"no prePull and no job":            {changes{withoutPrePull}, nil, nil, nil},
		"the policy is being deleted":      {changes{with(one), policyDeleted}, nil, one, nil},
		"a job is being deleted":           {changes{with(one, jobDeleted)}, nil, nil, says("PrePulling", waits(image))},
		"an unwanted job is being deleted": {changes{with(one, jobDeleted), withoutPrePull}, nil, nil, nil},
		"Kruise has not processed the job": {
			changes{with(one, func(e *prepull.Existing) { *e = prepull.Existing{Namespace: e.Namespace, Name: e.Name} })}, nil, nil, says("PrePulling", waits(image)),
		},
		"many images are counted": {
			changes{sidecars(a, b, v1alpha1.TerminationSettings{Image: "c"}, v1alpha1.TerminationSettings{Image: "d"}), with([]string{"a", "b", "c", "d"})}, nil, nil,
			&prepull.Report{Holds: true, Reason: "PrePulled", Message: "a is on 3 of 3 nodes; b is on 3 of 3 nodes; c is on 3 of 3 nodes; and 1 more"},
		},
		"only images that are missing on nodes are reported": {
			changes{sidecars(a, b), with([]string{"a"}), with([]string{"b"}, nodes(3, 1))}, nil, nil, says("PrePulling", "b is on 1 of 3 nodes"),
		},
		"no node is selected": {changes{with(one, nodes(0, 0))}, nil, nil, says("PrePulling", image+" has no node to be pulled to: "+
			"OpenKruise knows no node that spec.prePull.nodeLabelSelector selects; correct it, or run OpenKruise's daemon on these nodes")},
		"failed nodes are reported before pulls in progress": {
			changes{sidecars(a, b), with([]string{"a"}, nodes(6, 1)), with([]string{"b"}, nodes(6, 1, "n4", "n1", "n2", "n3"))}, nil, nil,
			says("PrePullFailed", "b is on 1 of 6 nodes and could not be pulled to n1, n2, n3 and 1 more. The cause is in the events of each "+
				"job (kubectl -n batch describe imagepulljob mesh-HASH). Correct image or spec.prePull of the policy. OpenKruise retries after a day. To retry at once, delete the job; the operator recreates it"),
		},
		"OpenKruise is not installed": {changes{notServed}, nil, nil, says("PrePullUnavailable",
			"OpenKruise does not serve ImagePullJobs in this cluster; install it, or remove prePull. Nodes pull images when they need them")},
		"neither OpenKruise nor prePull": {changes{notServed, withoutPrePull}, nil, nil, nil},
		"a denied job is retried": {changes{denied}, one, nil, says("PrePullUnavailable", "the gate is off. Turn on OpenKruise's feature gate ImagePullJobGate, "+
			"or correct what the message names, or remove spec.prePull from the policy. Until then nodes pull images when they need them")},
		"an earlier denial does not count once the job exists": {changes{with(one), denied}, nil, nil, everywhere},
		"pre-pulling is disabled": {changes{with(one), disabled}, nil, nil,
			says("PrePullUnavailable", "the operator runs with --pre-pull=Disabled; nodes pull images when they need them")},
		"pre-pulling is disabled, no prePull": {changes{with(one), disabled, withoutPrePull}, nil, nil, nil},
		"the operator watches single namespaces": {changes{notServed, func(s *prepull.Situation) { s.Capabilities.NamespacesOnly = true }}, nil, nil,
			says("PrePullUnavailable", "the operator runs with --watch-namespaces and does not use OpenKruise; nodes pull images when they need them")},
		"mode Image is disabled": {changes{with(one), func(s *prepull.Situation) { s.Capabilities.Image = false }}, nil, one,
			says("ModeDisabled", "no image is needed, because the operator runs with --image-swap=Disabled; remove prePull")},
		"the policy becomes DryRun": {changes{with(one), spec(func(p *v1alpha1.PolicySpec) { p.Enforcement = "DryRun" })}, nil, one,
			says("DryRun", "nothing is pulled; set enforcement to Enforce to act")},
		"no image is needed": {changes{spec(func(p *v1alpha1.PolicySpec) { p.Mode, p.Fallback = "CRR", "Disabled" })}, nil, nil, says("PrePullUnavailable",
			"no image is needed, because every sidecar declares another mode than Image with fallback Disabled; remove prePull")},
		"the policy's image is not allowed": {changes{sidecars(a), listed}, nil, nil, says("ImageNotAllowed", "nothing is pulled, because quick-exit image a is not allowed: "+
			"it is not on the list of the operator's administrator; use one that --allowed-quick-exit-image of the operator permits")},
		"the operator's image is always allowed": {changes{listed, with(one)}, nil, nil, everywhere},
		"no image at any level": {changes{func(s *prepull.Situation) { s.DefaultImage = "" }}, nil, nil, says("NoQuickExitImage",
			"no quick-exit image is set; set image in the policy, or the operator's --quick-exit-image. Images of environment variables are not pulled")},
		"the operator does not know its namespace": {changes{ofCluster, func(s *prepull.Situation) { s.Namespace = "" }}, nil, nil, says("PrePullUnavailable",
			"the operator does not know its namespace, where the ImagePullJobs of cluster policies live; run it in the cluster, or set its --leader-election-namespace")},
		"the node selector becomes invalid": {changes{with(one), prePull(func(p *v1alpha1.PrePull) {
			p.NodeLabelSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Equals"}}}
		})}, nil, one, says("InvalidSelector", `parse spec.prePull.nodeLabelSelector: "Equals" is not a valid label selector operator`)},
	} {
		t.Run(name, func(t *testing.T) {
			s := situation(tc.change...)
			decision := prepull.Decide(s)
			var create, remove []string
			hash := func(name string) {
				if decision.Report != nil {
					decision.Report.Message = strings.ReplaceAll(decision.Report.Message, name, "mesh-HASH")
				}
			}
			for _, job := range decision.Create {
				create = append(create, job.Image)
				hash(job.Name)
			}
			for _, e := range decision.Delete {
				remove = append(remove, strings.TrimPrefix(string(e.UID), "of "))
			}
			for _, e := range s.Existing {
				hash(e.Name)
			}
			slices.Sort(remove)
			if diff := cmp.Diff([][]string{tc.create, tc.delete}, [][]string{create, remove}); diff != "" {
				t.Errorf("created and deleted (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.report, decision.Report); diff != "" {
				t.Errorf("report (-want +got):\n%s", diff)
			}
		})
	}
}

// The operator finds its jobs again after a restart or an upgrade.
func TestJobNameIsStable(t *testing.T) {
	s := situation(prePull(func(p *v1alpha1.PrePull) {
		p.NodeLabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "batch", "arch": "arm64"}}
		p.ImagePullSecrets = []v1alpha1.SecretReference{{Name: "registry"}}
	}))
	if got, want := prepull.Decide(s).Create[0].Name, "mesh-81dd810c34e4"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
