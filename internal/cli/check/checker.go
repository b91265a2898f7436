// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/internal/cli/source"
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

	deploymentName string // of the operator, or empty
	settings       settings.Operator
	flagsError     error // why the operator's flags cannot be parsed, or nil

	section string
	name    string // of the current check
	checks  []checkResult
}

// check runs every check. An error means that a check could not run.
func (c *checker) check(ctx context.Context, pre bool) (*result, error) {
	read := c.readSettings
	sections := []struct {
		name  string
		check func(context.Context) error
	}{
		{"Kubernetes", c.kubernetes},
		{"Operator", c.operator},
		{"Operator permissions", c.operatorPermissions},
		{"Policies", c.policies},
		{"Policies", c.uncheckedPolicies},
		{"Native sidecars", c.conversion},
		{"Network", c.network},
		{"OpenKruise", c.kruise},
	}
	if pre {
		read = c.defaultSettings
		sections = sections[:1]
		sections = append(sections, []struct {
			name  string
			check func(context.Context) error
		}{
			{"Installation", c.installation},
			{"OpenKruise", c.kruise},
		}...)
	}
	if err := read(ctx); err != nil {
		return nil, err
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
	c.checks = append(c.checks, checkResult{c.section, c.name, outcomeOK, fmt.Sprintf(format, arguments...), ""})
}

func (c *checker) warn(hint, format string, arguments ...any) {
	c.checks = append(c.checks, checkResult{c.section, c.name, outcomeWarning, fmt.Sprintf(format, arguments...), hint})
}

func (c *checker) fail(hint, format string, arguments ...any) {
	c.checks = append(c.checks, checkResult{c.section, c.name, outcomeFailure, fmt.Sprintf(format, arguments...), hint})
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
