// SPDX-License-Identifier: Apache-2.0

package check

import (
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/version"
)

const versionHint = "use the command line of the operator's version: another one may come to other decisions"

// operatorVersion compares the operator's version, as far as the tag of its image tells, with that of this program.
func (c *checker) operatorVersion(deployment *appsv1.Deployment) {
	switch operator := versionOf(imageOf(deployment)); {
	case operator == "" || c.own == "":
	case strings.TrimPrefix(operator, "v") != strings.TrimPrefix(c.own, "v"):
		c.warn(versionHint, "the operator has version %s, and this program %s", operator, c.own)
	default:
		c.ok("the operator has version %s, as this program", operator)
	}
}

// versionOf returns the tag of the image if it is a version, else nothing.
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
