// SPDX-License-Identifier: Apache-2.0

package process

import "syscall"

func endWithCaller(attributes *syscall.SysProcAttr) { attributes.Pdeathsig = syscall.SIGKILL }
