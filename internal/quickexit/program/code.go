// SPDX-License-Identifier: Apache-2.0

package program

import (
	"debug/elf"
	"slices"
)

// target is the part of the program that depends on the architecture.
type target struct {
	machine elf.Machine
	code    []byte
}

// targets are the programs by architecture. Each calls exit_group(0), as C libraries and Go programs do, so that every
// seccomp profile that lets a sidecar exit permits it. If a profile still denies that, the program calls exit(0). If that
// fails too, it executes an invalid instruction.
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
