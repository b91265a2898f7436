// SPDX-License-Identifier: Apache-2.0

package settings

import "runtime/debug"

// Release is the version of this source tree. A test compares it with the image tag in config/default.
const Release = "v0.1.0"

// Version returns the version of the running program.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Release
	}
	return versionOf(info)
}

// versionOf returns the tag or commit that Go built the module from. Released programs are built without one, so that
// they do not depend on the state of a repository: their version is Release.
func versionOf(info *debug.BuildInfo) string {
	if built := info.Main.Version; built != "" && built != "(devel)" {
		return built
	}
	return Release
}

// SourceRef returns the Git reference of the manifests of this program: the commit of a build that Go has recorded it in, or else Release.
func SourceRef() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Release
	}
	return refOf(info)
}

func refOf(info *debug.BuildInfo) string {
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			return setting.Value
		}
	}
	return Release
}
