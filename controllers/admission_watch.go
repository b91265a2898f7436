// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/sidecar-termination/operator/internal/observe"
	"github.com/sidecar-termination/operator/internal/safetext"
	"github.com/sidecar-termination/operator/internal/shipped"
)

// Names of the objects depend on the installation, and kustomize does not rewrite resourceNames. The objects hold no secrets.
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingadmissionpolicies;validatingadmissionpolicybindings,verbs=get
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingadmissionpolicies;mutatingadmissionpolicybindings,verbs=get

// The leader reads the admission policies at this interval, extended by up to the jitter. One round of reads takes at most the timeout.
const (
	admissionInterval = time.Minute
	admissionJitter   = 0.2
	admissionTimeout  = 30 * time.Second
)

// admissionPolicies has one series for each admission policy: that of its current state. The names are those of config/admission.
var admissionPolicies = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "sidecar_termination_admission_policies",
	Help: "1 for the state of each admission policy that the operator needs, with its binding: Present (as shipped), Missing, NotServed by the API server, Changed, BeingDeleted, or Unknown.",
}, []string{"policy", "state"})

func init() { metrics.Registry.MustRegister(admissionPolicies) }

// admissionWatch reports when an admission policy of the installation disappears or changes. No decision depends on it.
type admissionWatch struct {
	reader    client.Reader // the API server
	log       logr.Logger
	pod       types.NamespacedName // of the operator; empty outside of a cluster
	interval  time.Duration
	policies  []shipped.AdmissionPolicy
	states    map[string]shipped.State // by name in config/default
	failed    bool                     // in the last round
	unguarded *atomic.Bool             // neither the outcome policy nor the one that keeps outcomes is there
	changed   func(ctx context.Context)
}

// watchAdmission adds an admissionWatch, which sets unguarded and reports its changes. An operator for single namespaces has no permission
// for it.
func watchAdmission(mgr manager.Manager, unguarded *atomic.Bool, changed func(ctx context.Context), options Options) error {
	if options.Capabilities.NamespacesOnly {
		return nil
	}
	watch, err := newAdmissionWatch(mgr.GetAPIReader(), options)
	if err != nil {
		return err
	}
	watch.unguarded, watch.changed = unguarded, changed
	return mgr.Add(watch)
}

func newAdmissionWatch(reader client.Reader, options Options) (*admissionWatch, error) {
	policies, err := shipped.AdmissionPolicies(options.Capabilities)
	watch := &admissionWatch{
		reader: reader, log: ctrl.Log.WithName("admission"), interval: admissionInterval, policies: policies, states: map[string]shipped.State{},
		unguarded: &atomic.Bool{}, changed: func(context.Context) {},
	}
	if name := os.Getenv("POD_NAME"); name != "" {
		watch.pod = types.NamespacedName{Namespace: options.PrePullNamespace, Name: name}
	}
	return watch, err
}

// NeedLeaderElection is true: one report is enough.
func (w *admissionWatch) NeedLeaderElection() bool { return true }

// Start reads and reports until the context ends.
func (w *admissionWatch) Start(ctx context.Context) error {
	wait.JitterUntilWithContext(ctx, w.round, w.interval, admissionJitter, true)
	return nil
}

// round reads every policy once. A state that cannot be read stays as it was, unless the round before failed as well or the operator
// lacks permission.
func (w *admissionWatch) round(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, admissionTimeout)
	defer cancel()
	var unknown []string
	var failure error
	in, err := w.installation(limited)
	for _, policy := range w.policies {
		status := shipped.Status{State: shipped.Unknown}
		readError := err
		if readError == nil {
			status, _, readError = observe.AdmissionPolicy(limited, w.reader, policy, in)
		}
		if ctx.Err() != nil {
			return
		}
		if readError != nil {
			failure = readError
			if !w.failed && !apierrors.IsForbidden(readError) && !apierrors.IsNotFound(readError) {
				continue
			}
			if w.states[policy.Name] != shipped.Unknown {
				unknown = append(unknown, policy.Short())
			}
		}
		w.report(in, policy, status)
	}
	if w.failed = failure != nil; len(unknown) > 0 {
		w.log.Info("Cannot tell whether the admission policies are as shipped", "admissionPolicies", unknown, "cause", failure.Error())
	}
	if unguarded := shipped.Unguarded(w.states); w.unguarded.Swap(unguarded) != unguarded {
		w.changed(ctx)
	}
}

// installation returns how the installation names its objects, according to the operator's own pod.
func (w *admissionWatch) installation(ctx context.Context) (shipped.Installation, error) {
	if w.pod.Name == "" {
		return shipped.Installation{}, nil
	}
	pod := &corev1.Pod{}
	if err := w.reader.Get(ctx, w.pod, pod); err != nil {
		return shipped.Installation{}, err
	}
	in := shipped.Installation{Namespace: pod.Namespace, Account: pod.Spec.ServiceAccountName}
	for _, owner := range pod.OwnerReferences {
		if owner.Kind == "ReplicaSet" {
			in.Deployment = strings.TrimSuffix(owner.Name, "-"+pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey])
		}
	}
	return in, nil
}

// report sets the metric and logs a transition. A policy that is as shipped from the beginning needs no line, and round logs unknown ones.
func (w *admissionWatch) report(in shipped.Installation, policy shipped.AdmissionPolicy, status shipped.Status) {
	before := w.states[policy.Name]
	if before == status.State {
		return
	}
	w.states[policy.Name] = status.State
	admissionPolicies.DeleteLabelValues(policy.Short(), string(before))
	admissionPolicies.WithLabelValues(policy.Short(), string(status.State)).Set(1)
	log := w.log.WithValues("admissionPolicy", in.Name(policy.Name))
	switch status.State {
	case shipped.Missing:
		log.Info("Admission policy is missing", "effect", policy.Effect)
	case shipped.NotServed:
		log.Info("Admission policy needs Kubernetes 1.36", "effect", policy.Effect)
	case shipped.BeingDeleted:
		log.Info("Admission policy is being deleted", "effect", policy.Effect)
	case shipped.Changed:
		const few = 5
		log.Info("Admission policy is not as this version ships it", "differences", safetext.List(status.Differences, few, ", "),
			"appliesToOperator", !status.OtherAccount)
	case shipped.Unknown:
	case shipped.Present:
		if before != "" {
			log.Info("Admission policy is as shipped again")
		}
	}
}
