// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/cli/source"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/settings"
)

// checker runs the checks and collects their results.
type checker struct {
	*options
	Client         client.Client
	operator       source.FoundOperator
	version        *version.Info // of Kubernetes
	programVersion string        // version of this program, or empty

	deployment      *appsv1.Deployment // of the operator, or nil
	deploymentError error              // because the user may not list Deployments
	settings        settings.Operator
	flagsError      error // why the operator's flags cannot be parsed, or nil

	// These are results of checks, for later checks.
	authorsCheckedSince map[string]time.Time // when both an admission policy for authors and its binding existed
	policies            []explain.Policy
	kruiseServed        bool

	current check
	results []checkResult
}

// check is one row of the report. It may have several results, or none.
type check struct {
	section, name string
	run           func(*checker, context.Context) error
	// needs reports whether the check makes sense, or is nil.
	needs func(*checker) bool
}

var checks = []check{
	{"Kubernetes", "KubernetesVersion", (*checker).checkKubernetes, nil},
	{"Operator", "Deployment", (*checker).checkDeployment, nil},
	{"Operator", "CustomResourceDefinitions", (*checker).checkDefinitions, nil},
	{"Operator", "OperatorVersion", (*checker).checkVersion, (*checker).isFound},
	{"Operator", "Flags", (*checker).checkFlags, (*checker).isFound},
	{"Operator", "Namespaces", (*checker).checkNamespaces, (*checker).readsNamespaces},
	{"Operator", "Metrics", (*checker).checkMetrics, (*checker).knowsFlags},
	{"Operator", "Profiles", (*checker).checkProfiles, (*checker).knowsFlags},
	{"Operator", "PodSecurity", (*checker).checkSecurity, (*checker).isFound},
	{"Operator", "Lease", (*checker).checkLease, (*checker).isRunning},
	{"Operator", "AdmissionPolicies", (*checker).checkAdmission, nil},
	{"Operator permissions", "Permissions", (*checker).checkPermissions, (*checker).isFound},
	{"Operator permissions", "Roles", (*checker).checkRoles, (*checker).hasClusterRoles},
	{"Policies", "PolicyConditions", (*checker).checkPolicies, nil},
	{"Policies", "InjectedContainers", (*checker).checkInjected, (*checker).isFound},
	{"Policies", "PolicyAuthors", (*checker).checkAuthors, nil},
	{"Network", "Network", (*checker).checkNetwork, (*checker).endsByPhase},
	{"Network", "MetricsNetwork", (*checker).checkMetricsNetwork, (*checker).servesMetrics},
	{"OpenKruise", "OpenKruise", (*checker).checkKruise, (*checker).readsCluster},
	{"OpenKruise", "OpenKruiseDaemon", (*checker).checkKruiseDaemon, (*checker).usesKruise},
	{"OpenKruise", "OpenKruiseSidecarTerminator", (*checker).checkKruiseManager, (*checker).usesKruise},
}

func (c *checker) isFound() bool         { return c.deployment != nil }
func (c *checker) isRunning() bool       { return c.isFound() && c.deployment.Status.ReadyReplicas > 0 }
func (c *checker) knowsFlags() bool      { return c.isFound() && c.flagsError == nil }
func (c *checker) readsCluster() bool    { return !c.settings.Capabilities.NamespacesOnly }
func (c *checker) hasClusterRoles() bool { return c.isFound() && c.readsCluster() }
func (c *checker) readsNamespaces() bool { return c.knowsFlags() && !c.readsCluster() }

// check runs every check. An error means that a check could not run.
func (c *checker) check(ctx context.Context) (*result, error) {
	if err := c.readOperator(ctx); err != nil {
		return nil, err
	}
	rows := checks
	if c.before {
		rows = checksBefore
	} else if c.deployment == nil && c.deploymentError == nil {
		rows = checks[:2] // the operator is not installed, from which everything else would follow
	}
	for _, c.current = range rows {
		if c.current.needs != nil && !c.current.needs(c) {
			continue
		}
		if err := c.current.run(c, ctx); err != nil {
			return nil, err
		}
	}
	// What is left needs no permission.
	if !c.before && !slices.ContainsFunc(c.results, func(r checkResult) bool {
		return r.Hint != unreadableHint && (r.Section == "Operator" || r.Section == "Policies")
	}) {
		return nil, errNothingReadable
	}
	return newResult(c.results), nil
}

// errNothingReadable means that the API server has denied every read of the installation.
var errNothingReadable = errors.New("you may not read anything of the operator: ask a cluster administrator to run this command, " +
	"or for permission to read Deployments, CustomResourceDefinitions, admission policies and the policies of the operator")

// readOperator reads the operator's Deployment and its flags. The settings are the defaults if the operator is missing or
// unreadable, or has invalid flags.
func (c *checker) readOperator(ctx context.Context) error {
	c.operator, c.deploymentError = c.connection.FindOperator(ctx, c.Client)
	c.deployment = c.operator.Deployment
	if c.deploymentError != nil && !apierrors.IsForbidden(c.deploymentError) {
		return c.deploymentError
	}
	var arguments []string
	if c.deployment != nil {
		arguments, _ = source.OperatorArguments(c.deployment)
	}
	var err error
	if c.settings, c.flagsError = settings.Parse(arguments); c.flagsError != nil {
		c.settings, err = settings.Parse(nil)
	}
	return err
}

func (c *checker) ok(format string, arguments ...any) {
	c.add(outcomeOK, "", fmt.Sprintf(format, arguments...))
}

func (c *checker) warn(hint, format string, arguments ...any) {
	c.add(outcomeWarning, hint, fmt.Sprintf(format, arguments...))
}

func (c *checker) fail(hint, format string, arguments ...any) {
	c.add(outcomeFailure, hint, fmt.Sprintf(format, arguments...))
}

// add adds a result. Several checks may find the same: that a kind is not served, or that the user may not read it.
func (c *checker) add(o outcome, hint, message string) {
	if !slices.ContainsFunc(c.results, func(known checkResult) bool { return known.Outcome == o && known.Message == message }) {
		c.results = append(c.results, checkResult{c.current.section, c.current.name, o, message, hint})
	}
}

const unreadableHint = "request permission to read them, or ask someone who has it"

// unreadable reports whether the error is a missing permission of the user, and adds a warning for it.
func (c *checker) unreadable(err error, what string) bool {
	if !apierrors.IsForbidden(err) {
		return false
	}
	c.warn(unreadableHint, "you may not read %s", what)
	return true
}

// read returns whether an object was read, and an error that is not a missing permission of the user.
func (c *checker) read(err error, what string) (bool, error) {
	if err == nil || c.unreadable(err, what) {
		return err == nil, nil
	}
	return false, fmt.Errorf("read %s: %w", what, err)
}

// minimumMinor is the first minor version of Kubernetes 1 that serves validating admission policies in version v1.
const minimumMinor = 30

func (c *checker) checkKubernetes(context.Context) error {
	minor, err := strconv.Atoi(strings.TrimRight(c.version.Minor, "+"))
	switch {
	case err != nil || c.version.Major != "1":
		c.warn("compare it with the tested versions of the operator", "unknown version of Kubernetes: %s", c.version.GitVersion)
	case minor < minimumMinor:
		c.fail("upgrade Kubernetes", "Kubernetes %s is older than 1.%d and does not serve admission policies in version v1", c.version.GitVersion, minimumMinor)
	case minor < settings.OldestMinor:
		c.warn("upgrade Kubernetes", "Kubernetes %s is older than 1.%d, the oldest version that is tested", c.version.GitVersion, settings.OldestMinor)
	default:
		c.ok("Kubernetes %s supports the operator", c.version.GitVersion)
	}
	return nil
}
