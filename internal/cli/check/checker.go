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
	"github.com/sidecar-termination/operator/internal/explain"
)

// checker goes through the checks and gathers their lines.
type checker struct {
	*source.Live
	client    client.Client
	namespace string        // of the operator
	version   *version.Info // of Kubernetes
	program   string        // what users type
	own       string        // version of this program, empty where it is not known
	parse     func(arguments []string) (explain.OperatorSettings, error)
	now       func() time.Time

	settings explain.OperatorSettings
	badFlags error // why the operator's flags cannot be understood, or nil

	section string
	lines   []line
}

// check carries out every check. An error means that it was not possible to look.
func (c *checker) check(ctx context.Context, pre bool) (*result, error) {
	sections := []struct {
		name  string
		check func(context.Context) error
	}{
		{"Kubernetes", c.kubernetes},
		{"Operator", c.operator},
		{"Rights of the operator", c.operatorRights},
		{"Policies", c.policies},
		{"Policies", c.uncheckedPolicies},
		{"Network", c.network},
		{"OpenKruise", c.kruise},
	}
	if pre {
		sections = sections[:1]
		sections = append(sections, []struct {
			name  string
			check func(context.Context) error
		}{
			{"Installation", c.installation},
			{"OpenKruise", c.kruise},
		}...)
	} else if err := c.readSettings(ctx); err != nil {
		return nil, err
	}
	for _, section := range sections {
		c.section = section.name
		if err := section.check(ctx); err != nil {
			return nil, err
		}
	}
	return &result{c.lines}, nil
}

func (c *checker) ok(format string, arguments ...any) {
	c.lines = append(c.lines, line{c.section, levelOK, fmt.Sprintf(format, arguments...), ""})
}

func (c *checker) warn(hint, format string, arguments ...any) {
	c.lines = append(c.lines, line{c.section, levelWarning, fmt.Sprintf(format, arguments...), hint})
}

func (c *checker) fail(hint, format string, arguments ...any) {
	c.lines = append(c.lines, line{c.section, levelFailure, fmt.Sprintf(format, arguments...), hint})
}

// unreadable adds a warning for what the user may not read, and reports whether that is what the error says.
func (c *checker) unreadable(err error, what string) bool {
	if !apierrors.IsForbidden(err) {
		return false
	}
	c.warn("ask someone who may, or for the right to read them", "you may not read %s", what)
	return true
}

// minimumMinor is the first version of Kubernetes 1 with all that the operator's manifests use: admission policies in
// version v1. The rules of its definitions came earlier.
const minimumMinor = 30

func (c *checker) kubernetes(context.Context) error {
	minor, err := strconv.Atoi(strings.TrimRight(c.version.Minor, "+"))
	if err != nil || c.version.Major != "1" {
		c.warn("look for it among the versions that the operator was tested with", "Kubernetes %s has a version that is not understood", c.version.GitVersion)
		return nil
	}
	if minor < minimumMinor {
		c.fail("upgrade Kubernetes", "Kubernetes %s is older than 1.%d, and lacks admission policies in version v1", c.version.GitVersion, minimumMinor)
		return nil
	}
	c.ok("Kubernetes %s has all that the operator needs", c.version.GitVersion)
	return nil
}
