// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/cli/source"
	"github.com/sidecar-termination/operator/internal/settings"
)

// checker runs the checks and collects their results.
type checker struct {
	*source.Live
	client         client.Client
	namespace      string        // of the operator
	version        *version.Info // of Kubernetes
	program        string        // name of the program
	programVersion string        // version of this program, or empty
	now            func() time.Time

	deploymentName       string // of the operator, or empty
	deploymentUnreadable bool   // because the user may not list Deployments
	installer            installer
	settings             settings.Operator
	flagsError           error // why the operator's flags cannot be parsed, or nil

	section string
	name    string // of the current check
	checks  []checkResult
}

// section is a group of checks.
type section struct {
	name  string
	check func(context.Context) error
}

// check runs every check. An error means that a check could not run.
func (c *checker) check(ctx context.Context, pre bool) (*result, error) {
	read := c.readSettings
	sections := []section{
		{"Kubernetes", c.kubernetes},
		{"Operator", c.operator},
		{"Operator permissions", c.operatorPermissions},
		{"Policies", c.policies},
		{"Policies", c.uncheckedPolicies},
		{"Network", c.network},
		{"OpenKruise", c.kruise},
	}
	if pre {
		read = c.defaultSettings
		sections = append(sections[:1], section{"Installation", c.installation}, section{"OpenKruise", c.kruise})
	}
	if err := read(ctx); err != nil {
		return nil, err
	}
	if !pre {
		installed, err := c.isInstalled(ctx)
		if err != nil {
			return nil, err
		}
		if !installed {
			sections = append(sections[:1], section{"Operator", c.notInstalled})
		}
	}
	for _, section := range sections {
		c.section = section.name
		if err := section.check(ctx); err != nil {
			return nil, err
		}
	}
	return newResult(c.checks), nil
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
	if !slices.ContainsFunc(c.checks, func(known checkResult) bool { return known.Outcome == o && known.Message == message }) {
		c.checks = append(c.checks, checkResult{c.section, c.name, o, message, hint})
	}
}

// unreadable reports whether the error is a missing permission of the user, and adds a warning for it.
func (c *checker) unreadable(err error, what string) bool {
	if !apierrors.IsForbidden(err) {
		return false
	}
	c.warn("request permission to read them, or ask someone who has it", "you may not read %s", what)
	return true
}

// minimumMinor is the first minor version of Kubernetes 1 that supports the operator's manifests: it serves admission policies
// in version v1.
const minimumMinor = 30

func (c *checker) kubernetes(context.Context) error {
	c.name = "KubernetesVersion"
	minor, err := strconv.Atoi(strings.TrimRight(c.version.Minor, "+"))
	if err != nil || c.version.Major != "1" {
		c.warn("compare it with the tested versions of the operator", "unknown version of Kubernetes: %s", c.version.GitVersion)
		return nil
	}
	if minor < minimumMinor {
		c.fail("upgrade Kubernetes", "Kubernetes %s is older than 1.%d and does not serve admission policies in version v1", c.version.GitVersion, minimumMinor)
		return nil
	}
	c.ok("Kubernetes %s supports the operator", c.version.GitVersion)
	return nil
}
