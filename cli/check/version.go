// SPDX-License-Identifier: Apache-2.0

package check

import (
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/version"
)

const versionHint = "use the command line of the operator's version: other versions may decide differently"

// operatorVersion compares the version in the operator's image tag with the version of this program.
func (c *checker) operatorVersion(deployment *appsv1.Deployment) {
	c.name = "OperatorVersion"
	switch operator := versionOf(imageOf(deployment)); {
	case operator == "" || c.programVersion == "":
	case strings.TrimPrefix(operator, "v") != strings.TrimPrefix(c.programVersion, "v"):
		c.warn(versionHint, "the operator has version %s, but this program has version %s", operator, c.programVersion)
	default:
		c.ok("the operator and this program have version %s", operator)
	}
}

// versionOf returns the tag of the image if it is a version, or nothing.
func versionOf(image string) string {
	image, _, _ = strings.Cut(image, "@")
	tag, err := name.NewTag(image)
	if err != nil {
		return ""
	}
	if _, err := version.ParseSemantic(tag.TagStr()); err != nil {
		return ""
	}
	return tag.TagStr()
}
