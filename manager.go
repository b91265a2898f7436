// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/sidecar-termination/operator/controllers"
	"github.com/sidecar-termination/operator/internal/podcache"
	"github.com/sidecar-termination/operator/internal/safetext"
	"github.com/sidecar-termination/operator/internal/scheme"
	"github.com/sidecar-termination/operator/internal/settings"
)

// run runs the operator until the context ends.
func run(ctx context.Context, operator settings.Operator) error {
	ctrl.SetLogger(newLogger(operator.Log, os.Stderr))
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find a cluster: %w", err)
	}
	// Priority and fairness protects the API server; a client-side limit would only delay terminations.
	config.QPS = -1
	options := controllers.Options{Operator: operator, Clock: clock.RealClock{}}
	var lock resourcelock.Interface
	if operator.Lease.Name != "" {
		observed, err := newLease(config, operator.Lease)
		if err != nil {
			return fmt.Errorf("set up leader election: %w", err)
		}
		lock, options.LedBefore = observed, observed.ledBefore
	}
	mgr, err := newManager(config, lock, operator)
	if err != nil {
		return err
	}
	if err := controllers.Setup(ctx, mgr, options); err != nil {
		return err
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("run manager: %w", err)
	}
	return nil
}

// newLogger returns a logger that escapes control characters: names and messages of the API server and of webhooks may
// contain them.
func newLogger(options zap.Options, out io.Writer) logr.Logger {
	return zap.New(zap.UseFlagOptions(&options), zap.WriteTo(safetext.Writer{W: out}))
}

// newManager returns a manager that leads while it holds the lock. Without a lock it leads at once.
func newManager(config *rest.Config, lock resourcelock.Interface, operator settings.Operator) (manager.Manager, error) {
	types, err := scheme.New()
	if err != nil {
		return nil, err
	}
	caches, err := podcache.ManagerOptions(operator.WatchNamespaces...)
	if err != nil {
		return nil, fmt.Errorf("set up caches: %w", err)
	}
	mgr, err := manager.New(config, manager.Options{
		Scheme:                              types,
		MapperProvider:                      scheme.NewMapper,
		Cache:                               caches,
		NewCache:                            podcache.NewCache,
		Metrics:                             metricsOptions(operator.Metrics),
		HealthProbeBindAddress:              operator.ProbeAddress,
		PprofBindAddress:                    operator.PprofAddress,
		LeaderElection:                      lock != nil,
		LeaderElectionResourceLockInterface: lock,
		LeaderElectionID:                    operator.Lease.Name, // names the metric of leader election
		LeaderElectionReleaseOnCancel:       true,
		GracefulShutdownTimeout:             &operator.ShutdownTimeout,
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

// The metrics server asks the API server who the client is, and whether it may get /metrics.
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

// metricsOptions returns how metrics are served. Without CertDir, controller-runtime generates a self-signed certificate.
func metricsOptions(metrics settings.Metrics) metricsserver.Options {
	options := metricsserver.Options{BindAddress: cmp.Or(metrics.Address, "0")}
	if !metrics.Authenticated {
		return options
	}
	options.SecureServing = true
	options.FilterProvider = authorized(clock.RealClock{})
	options.CertDir = metrics.CertDir
	// With HTTP/2 a client can open and reset streams faster than the server can handle (CVE-2023-44487). Scrapes do not
	// need it.
	options.TLSOpts = []func(*tls.Config){func(config *tls.Config) { config.NextProtos = []string{"http/1.1"} }}
	return options
}

// cachesSynced reports readiness once the caches are filled, so that a rollout waits for a replica that could take over.
func cachesSynced(mgr manager.Manager) healthz.Checker {
	return func(request *http.Request) error {
		if !mgr.GetCache().WaitForCacheSync(request.Context()) {
			return errors.New("caches are not filled yet")
		}
		return nil
	}
}
