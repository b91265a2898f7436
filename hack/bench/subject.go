// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/sidecar-termination/operator/hack/localcluster/process"
)

// programs are the binaries under test.
type programs struct {
	operator      string
	kruiseManager string // empty: something else plays OpenKruise's webhook
}

// running is a subject at work, with all that it needs.
type running struct {
	// measured is the process whose work is counted; nil for bare clients.
	measured *started
	// beside is OpenKruise's manager where it is not measured, and nil otherwise.
	beside *started
	serves
	all []*started
}

// serves is where the measured process serves its metrics and its profiles; empty for bare clients.
type serves struct{ metrics, profiles string }

// start starts the subject, and OpenKruise's manager, whose webhook every ContainerRecreateRequest passes.
func (p programs) start(ctx context.Context, e *environment, subject Subject) (r *running, err error) {
	r = &running{}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("start %s: %w", subject, err), r.stop(ctx))
		}
	}()
	if p.kruiseManager != "" {
		manager, at, err := p.startKruise(ctx, e, subject)
		if err != nil {
			return r, err
		}
		r.all = append(r.all, manager)
		if subject.kruise() {
			r.measured, r.serves = manager, at
		} else {
			r.beside = manager
		}
	}
	if subject == SubjectOperator {
		operator, at, err := p.startOperator(ctx, e, "operator")
		if err != nil {
			return r, err
		}
		r.all = append(r.all, operator)
		r.measured, r.serves = operator, at
	}
	return r, nil
}

// stop ends all processes, the last one first.
func (r *running) stop(ctx context.Context) error {
	var failures []error
	for i := range r.all {
		failures = append(failures, r.all[len(r.all)-1-i].stop(ctx))
	}
	return errors.Join(failures...)
}

// startOperator starts a replica of the operator with its default flags, but for the settle period and what a place outside
// of a cluster needs, and returns where it serves. The API server knows what it writes by the replica's name.
func (p programs) startOperator(ctx context.Context, e *environment, name string) (*started, serves, error) {
	kubeconfig, err := e.kubeconfig(name)
	if err != nil {
		return nil, serves{}, err
	}
	at, servesErr := freeToServe()
	probes, probesErr := freeAddress()
	if err := errors.Join(servesErr, probesErr); err != nil {
		return nil, serves{}, err
	}
	program := filepath.Join(e.directory, name)
	if err := os.Symlink(p.operator, program); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, serves{}, fmt.Errorf("name the replica: %w", err)
	}
	operator, err := launch(ctx, process.Command{
		Path: program,
		Arguments: []string{
			"--settle-period=0", "--leader-election-namespace=" + leaseNamespace,
			"--metrics-bind-address=" + at.metrics, "--pprof-bind-address=" + at.profiles, "--metrics-authentication=Disabled", "--health-probe-bind-address=" + probes,
		},
		Environment: []string{"KUBECONFIG=" + kubeconfig, "PATH=" + os.Getenv("PATH")},
		Directory:   e.directory,
		Log:         filepath.Join(e.directory, name+".log"),
	}, "http://"+probes+"/readyz")
	return operator, at, err
}

// operatorWorkers is the operator's default of --max-concurrent-reconciles.
const operatorWorkers = 32

// startKruise starts OpenKruise's manager, with its SidecarTerminator where that is the subject, else without, and returns
// where it serves.
func (p programs) startKruise(ctx context.Context, e *environment, subject Subject) (*started, serves, error) {
	kubeconfig, err := e.kubeconfig("kruise-manager")
	if err != nil {
		return nil, serves{}, err
	}
	at, servesErr := freeToServe()
	probes, probesErr := freeAddress()
	webhooks, webhooksErr := freeAddress()
	if err := errors.Join(servesErr, probesErr, webhooksErr); err != nil {
		return nil, serves{}, err
	}
	_, webhookPort, err := net.SplitHostPort(webhooks)
	if err != nil {
		return nil, serves{}, err
	}
	arguments := []string{
		"--kubeconfig=" + kubeconfig, "--enable-leader-election=false", "--pprof-addr=" + at.profiles,
		"--metrics-addr=" + at.metrics, "--health-probe-addr=" + probes,
		fmt.Sprintf("--feature-gates=AllAlpha=false,SidecarTerminator=%t", subject.kruise()),
	}
	if subject == SubjectKruiseLifted {
		arguments = append(arguments, "--rest-config-qps=100000", "--rest-config-burst=100000",
			fmt.Sprintf("--sidecarterminator-workers=%d", operatorWorkers))
	}
	manager, err := launch(ctx, process.Command{
		Path:      p.kruiseManager,
		Arguments: arguments,
		Environment: []string{
			"PATH=" + os.Getenv("PATH"), "HOME=" + e.directory, "POD_NAMESPACE=kruise-system",
			"WEBHOOK_HOST=127.0.0.1", "WEBHOOK_PORT=" + webhookPort, "WEBHOOK_CERT_DIR=" + filepath.Join(e.directory, "kruise-webhook"),
		},
		Directory: e.directory,
		Log:       filepath.Join(e.directory, "kruise-"+strings.TrimPrefix(string(subject), "kruise-")+".log"),
	}, "http://"+probes+"/readyz")
	return manager, at, err
}

// freeToServe returns addresses at which nobody serves now.
func freeToServe() (at serves, err error) {
	if at.metrics, err = freeAddress(); err != nil {
		return at, err
	}
	at.profiles, err = freeAddress()
	return at, err
}
