// SPDX-License-Identifier: Apache-2.0

package program

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
)

const (
	headerSize  = 64
	segmentSize = 56
	segments    = 2

	// loadAddress is the usual address of linkers, above the lowest pages, which Linux does not permit to map.
	loadAddress = 0x400000
	// alignment suits every page size that Linux uses on these architectures.
	alignment = 0x10000
)

// executable returns an ELF file that is loaded completely, is readable and executable but not writable, and starts at the
// code.
func executable(machine elf.Machine, code []byte) []byte {
	const codeOffset = headerSize + segments*segmentSize
	size := uint64(codeOffset + len(code))
	header := elf.Header64{
		Type:      uint16(elf.ET_EXEC),
		Machine:   uint16(machine),
		Version:   uint32(elf.EV_CURRENT),
		Entry:     loadAddress + codeOffset,
		Phoff:     headerSize,
		Ehsize:    headerSize,
		Phentsize: segmentSize,
		Phnum:     segments,
	}
	copy(header.Ident[:], elf.ELFMAG)
	header.Ident[elf.EI_CLASS] = byte(elf.ELFCLASS64)
	header.Ident[elf.EI_DATA] = byte(elf.ELFDATA2LSB)
	header.Ident[elf.EI_VERSION] = byte(elf.EV_CURRENT)
	all := elf.Prog64{
		Type:   uint32(elf.PT_LOAD),
		Flags:  uint32(elf.PF_R | elf.PF_X),
		Vaddr:  loadAddress,
		Paddr:  loadAddress,
		Filesz: size,
		Memsz:  size,
		Align:  alignment,
	}
	// Without this segment the kernel would make the stack executable, which some security modules forbid.
	stack := elf.Prog64{Type: uint32(elf.PT_GNU_STACK), Flags: uint32(elf.PF_R | elf.PF_W), Align: 16}

	file := &bytes.Buffer{}
	for _, part := range []any{header, all, stack, code} {
		// Writing to a buffer cannot fail, and every part has a fixed size.
		_ = binary.Write(file, binary.LittleEndian, part)
	}
	return file.Bytes()
}
