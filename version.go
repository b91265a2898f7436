// SPDX-License-Identifier: Apache-2.0

package main

import "runtime/debug"

// release is the version that the sources are released as. A test holds it to the image that config/default installs.
const release = "v0.1.0"

// version is that of the program.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return release
	}
	return versionOf(info)
}

// versionOf returns the tag or the commit that Go has built the module from, or else the release: programs that are shipped
// do not depend on the state of a repository.
func versionOf(info *debug.BuildInfo) string {
	if built := info.Main.Version; built != "" && built != "(devel)" {
		return built
	}
	return release
}
