// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/controllers"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/terminal"
	"github.com/sidecar-termination/operator/internal/terminator/crr"
)

// leaseName is the name of the leader election lease.
const leaseName = "sidecar-termination-operator.sidecartermination.dev"

// leaseSettings returns what check says of the lease.
func (o *options) leaseSettings() explain.LeaseSettings {
	if !o.leaderElect {
		return explain.LeaseSettings{}
	}
	return explain.LeaseSettings{Name: leaseName, Namespace: o.leaderElectionNamespace}
}

// newScheme returns a scheme with every type that the operator reads or writes.
func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, v1alpha1.AddToScheme, crr.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("register types: %w", err)
		}
	}
	return scheme, nil
}

// run runs the operator until the context ends.
func run(ctx context.Context, o *options) error {
	controllerOptions, err := o.controllerOptions()
	if err != nil {
		return err
	}
	ctrl.SetLogger(o.newLogger(os.Stderr))
	mgr, err := newManager(ctx, o)
	if err != nil {
		return err
	}
	if err := controllers.Setup(ctx, mgr, controllerOptions); err != nil {
		return err
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("run manager: %w", err)
	}
	return nil
}

// newLogger returns a logger that writes to out, in the form that the flags ask for. Names, and answers of the API server and
// of webhooks, are in what it writes, so that control characters are escaped.
func (o *options) newLogger(out io.Writer) logr.Logger {
	return zap.New(zap.UseFlagOptions(&o.zap), zap.WriteTo(terminal.Writer{W: out}))
}

// newManager returns a manager that is to run until the context ends.
func newManager(ctx context.Context, o *options) (manager.Manager, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return nil, fmt.Errorf("find a cluster: %w", err)
	}
	// The API server's priority and fairness protects it; a limit on this side only delays terminations.
	config.QPS = -1
	config.Wrap(yieldEvents(ctx))
	mgr, err := manager.New(config, manager.Options{
		Scheme:                        scheme,
		Cache:                         controllers.CacheOptions(scheme),
		Metrics:                       o.metricsServer(),
		HealthProbeBindAddress:        o.probeAddress,
		PprofBindAddress:              o.pprofAddress,
		LeaderElection:                o.leaderElect,
		LeaderElectionID:              leaseName,
		LeaderElectionNamespace:       o.leaderElectionNamespace,
		LeaderElectionReleaseOnCancel: true,
		GracefulShutdownTimeout:       &o.shutdownTimeout,
	})
	if err != nil {
		return nil, fmt.Errorf("make manager: %w", err)
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return nil, fmt.Errorf("add health check: %w", err)
	}
	if err := mgr.AddReadyzCheck("caches", cachesSynced(mgr)); err != nil {
		return nil, fmt.Errorf("add readiness check: %w", err)
	}
	return mgr, nil
}

// cachesSynced is ready once the caches have been filled, so that a rollout waits for a replica that could take over.
func cachesSynced(mgr manager.Manager) healthz.Checker {
	return func(request *http.Request) error {
		if !mgr.GetCache().WaitForCacheSync(request.Context()) {
			return errors.New("caches are not filled yet")
		}
		return nil
	}
}
