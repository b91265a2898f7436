// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sidecar-termination/operator/hack/localcluster/process"
)

// programs are the binaries under test.
type programs struct {
	operator       string
	operatorMemory string // the operator's GOMEMLIMIT, or empty for none
	kruiseManager  string // empty: something else plays OpenKruise's webhook
}

// running is a started contender with the processes that it needs.
type running struct {
	// measured is the process whose work is counted, or nil.
	measured *started
	// kruiseManager is OpenKruise's manager if it is not measured, or nil.
	kruiseManager *started
	serves
	all []*started
}

// serves is where the measured process serves its metrics and its profiles; empty if it does not.
type serves struct{ metrics, profiles string }

// start starts the contender and OpenKruise's manager, whose webhook admits every ContainerRecreateRequest.
func (p programs) start(ctx context.Context, e *environment, contender Contender) (r *running, err error) {
	r = &running{}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("start %s: %w", contender, err), r.stop(ctx))
		}
	}()
	if p.kruiseManager != "" {
		manager, at, err := p.startKruise(ctx, e, contender)
		if err != nil {
			return r, err
		}
		r.all = append(r.all, manager)
		if contender.kruise() {
			r.measured, r.serves = manager, at
		} else {
			r.kruiseManager = manager
		}
	}
	switch contender {
	case ContenderOperator:
		r.measured, r.serves, err = p.startOperator(ctx, e, "operator")
	case ContenderFloor:
		r.measured, err = startFloor(ctx, e)
	default:
		return r, nil
	}
	if err == nil {
		r.all = append(r.all, r.measured)
	}
	return r, err
}

// stop ends all processes, the last one first.
func (r *running) stop(ctx context.Context) error {
	var failures []error
	for _, last := range slices.Backward(r.all) {
		failures = append(failures, last.stop(ctx))
	}
	return errors.Join(failures...)
}

// startOperator starts a replica of the operator and returns where it serves. Its flags are the defaults, apart from the
// stabilization window and what a process outside a cluster needs. Its name is the field manager of its writes.
func (p programs) startOperator(ctx context.Context, e *environment, name string) (*started, serves, error) {
	kubeconfig, err := e.kubeconfig(name)
	if err != nil {
		return nil, serves{}, err
	}
	free, err := freeAddresses(3)
	if err != nil {
		return nil, serves{}, err
	}
	at, probes := serves{free[0], free[1]}, free[2]
	program := filepath.Join(e.directory, name)
	if err := os.Symlink(p.operator, program); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, serves{}, fmt.Errorf("name the replica: %w", err)
	}
	operator, err := launch(ctx, process.Command{
		Path: program,
		Arguments: []string{
			"--stabilization-window=0", "--leader-election-namespace=" + leaseNamespace,
			"--metrics-bind-address=" + at.metrics, "--pprof-bind-address=" + at.profiles, "--metrics-authentication=Disabled", "--health-probe-bind-address=" + probes,
		},
		Environment: []string{"KUBECONFIG=" + kubeconfig, "PATH=" + os.Getenv("PATH"), "GOMEMLIMIT=" + cmp.Or(p.operatorMemory, "off")},
		Directory:   e.directory,
		Log:         filepath.Join(e.directory, name+".log"),
	}, "http://"+probes+"/readyz")
	return operator, at, err
}

// operatorWorkers is the operator's default of --max-concurrent-reconciles.
const operatorWorkers = 32

// startKruise starts OpenKruise's manager and returns where it serves. SidecarTerminator is on only if it is the contender.
func (p programs) startKruise(ctx context.Context, e *environment, contender Contender) (*started, serves, error) {
	kubeconfig, err := e.kubeconfig("kruise-manager")
	if err != nil {
		return nil, serves{}, err
	}
	free, err := freeAddresses(4)
	if err != nil {
		return nil, serves{}, err
	}
	at, probes := serves{free[0], free[1]}, free[2]
	_, webhookPort, err := net.SplitHostPort(free[3])
	if err != nil {
		return nil, serves{}, err
	}
	arguments := []string{
		"--kubeconfig=" + kubeconfig, "--enable-leader-election=false", "--pprof-addr=" + at.profiles,
		"--metrics-addr=" + at.metrics, "--health-probe-addr=" + probes,
		fmt.Sprintf("--feature-gates=AllAlpha=false,SidecarTerminator=%t", contender.kruise()),
	}
	if contender == ContenderKruiseLifted {
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
		Log:       filepath.Join(e.directory, "kruise-"+strings.TrimPrefix(string(contender), "kruise-")+".log"),
	}, "http://"+probes+"/readyz")
	return manager, at, err
}
