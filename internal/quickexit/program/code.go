// SPDX-License-Identifier: Apache-2.0

package program

import (
	"debug/elf"
	"slices"
)

// target is what the programs of two architectures differ in.
type target struct {
	machine elf.Machine
	code    []byte
}

// targets are the programs by architecture. Each calls exit_group(0), which is how the
// programs of C libraries and of Go end, so that every seccomp profile that lets a
// sidecar end lets it end too. Where a profile answers with an error all the same, it
// calls exit(0), and if nothing ends it, it runs into an invalid instruction rather than
// into whatever follows.
var targets = map[string]target{
	"amd64": {machine: elf.EM_X86_64, code: slices.Concat(
		[]byte{0x31, 0xff},                   // xor  edi, edi
		[]byte{0xb8, 0xe7, 0x00, 0x00, 0x00}, // mov  eax, 231 (exit_group)
		[]byte{0x0f, 0x05},                   // syscall
		[]byte{0x31, 0xff},                   // xor  edi, edi
		[]byte{0xb8, 0x3c, 0x00, 0x00, 0x00}, // mov  eax, 60 (exit)
		[]byte{0x0f, 0x05},                   // syscall
		[]byte{0x0f, 0x0b},                   // ud2
	)},
	"arm64": {machine: elf.EM_AARCH64, code: slices.Concat(
		[]byte{0x00, 0x00, 0x80, 0xd2}, // mov  x0, #0
		[]byte{0xc8, 0x0b, 0x80, 0xd2}, // mov  x8, #94 (exit_group)
		[]byte{0x01, 0x00, 0x00, 0xd4}, // svc  #0
		[]byte{0x00, 0x00, 0x80, 0xd2}, // mov  x0, #0
		[]byte{0xa8, 0x0b, 0x80, 0xd2}, // mov  x8, #93 (exit)
		[]byte{0x01, 0x00, 0x00, 0xd4}, // svc  #0
		[]byte{0x00, 0x00, 0x20, 0xd4}, // brk  #0
	)},
}
