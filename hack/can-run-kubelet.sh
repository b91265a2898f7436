#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# Says, in one line, why this machine cannot run the local cluster, and fails. Says nothing and succeeds where it can.
set -euo pipefail

cannot() {
	echo "$1"
	exit 1
}

[[ "$(uname -s)" == Linux ]] || cannot "a kubelet needs Linux, and this is $(uname -s)"
[[ "$(id -u)" == 0 ]] || cannot "a kubelet needs root"
unshare --mount true 2>/dev/null || cannot "this root may not mount anything (no CAP_SYS_ADMIN)"
grep -qw overlay /proc/filesystems || modprobe overlay 2>/dev/null || cannot "the kernel has no overlay filesystem"

# Control groups: one hierarchy in version 2, one for each controller in version 1.
root=/sys/fs/cgroup
[[ -e "$root/cgroup.controllers" ]] || root=/sys/fs/cgroup/memory
probe="$root/sidecar-termination-probe-$$"
mkdir "$probe" 2>/dev/null || cannot "control groups cannot be created below $root"
rmdir "$probe"

# make cluster-up installs the packages that it needs.
command -v apt-get >/dev/null || cannot "the cluster needs packages of Debian or Ubuntu, and there is no apt-get"
