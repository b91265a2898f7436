// SPDX-License-Identifier: Apache-2.0

package settings

import "runtime/debug"

// Release is the version of this source tree. A test compares it with the image tag in config/default.
const Release = "v0.1.0"

// Version returns the version of the running program: the tag or commit that Go built the module from. Released programs are built
// without one, so that they do not depend on the state of a repository: their version is Release.
func Version() string { return versionOf(buildInfo()) }

func versionOf(info *debug.BuildInfo) string {
	if built := info.Main.Version; built != "" && built != "(devel)" {
		return built
	}
	return Release
}

// SourceRef returns the Git reference of the manifests of this program: the commit of a build that Go has recorded it in, or else Release.
func SourceRef() string { return refOf(buildInfo()) }

func refOf(info *debug.BuildInfo) string {
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			return setting.Value
		}
	}
	return Release
}

// buildInfo is empty for a program that was built without modules.
func buildInfo() *debug.BuildInfo {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info
	}
	return &debug.BuildInfo{}
}
