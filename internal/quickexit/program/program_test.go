// SPDX-License-Identifier: Apache-2.0

package program_test

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/arch/arm64/arm64asm"
	"golang.org/x/arch/x86/x86asm"

	"github.com/sidecar-termination/operator/internal/quickexit/program"
)

func assemble(t *testing.T, architecture string) []byte {
	t.Helper()
	content, err := program.For(architecture)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// A change of a program changes the digest of every image that contains it, so it must be intentional.
func TestProgramDigests(t *testing.T) {
	for architecture, want := range map[string]struct {
		size   int
		digest string
	}{
		"amd64": {196, "2242945d74afbbd6cedbd9617be49da56b51e83dc0789029db0d47255f668dc1"},
		"arm64": {204, "e8e707db21d7877c476f8be8e12b2565722f48a641997372d3cbbb6b28887348"},
	} {
		content := assemble(t, architecture)
		if !bytes.Equal(content, assemble(t, architecture)) {
			t.Errorf("%s: two programs differ", architecture)
		}
		digest := sha256.Sum256(content)
		if got := hex.EncodeToString(digest[:]); len(content) != want.size || got != want.digest {
			t.Errorf("%s: %d bytes with digest %s, want %d bytes with digest %s", architecture, len(content), got, want.size, want.digest)
		}
	}
}

func TestUnknownArchitecture(t *testing.T) {
	for _, architecture := range []string{"", "s390x", "2242945d74afbbd6cedbd9617be49da56b51e83dc0789029db0d47255f668dc1"} {
		if _, err := program.For(architecture); err == nil {
			t.Errorf("%q was accepted", architecture)
		}
	}
	if want := []string{"amd64", "arm64"}; !slices.Equal(program.Architectures(), want) {
		t.Errorf("architectures are %v, want %v", program.Architectures(), want)
	}
}

func TestProgramsAreStaticExecutables(t *testing.T) {
	for architecture, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		content := assemble(t, architecture)
		file, err := elf.NewFile(bytes.NewReader(content))
		if err != nil {
			t.Fatalf("%s: %v", architecture, err)
		}
		if file.Type != elf.ET_EXEC || file.Machine != machine || file.Class != elf.ELFCLASS64 || file.Data != elf.ELFDATA2LSB {
			t.Errorf("%s: header is %+v", architecture, file.FileHeader)
		}
		if len(file.Progs) != 2 {
			t.Fatalf("%s: %d segments, want 2", architecture, len(file.Progs))
		}
		load, stack := file.Progs[0], file.Progs[1]
		if load.Type != elf.PT_LOAD || load.Flags != elf.PF_R|elf.PF_X || load.Off != 0 || load.Filesz != uint64(len(content)) || load.Memsz != load.Filesz {
			t.Errorf("%s: the whole file must be loaded read-only: %+v", architecture, load.ProgHeader)
		}
		if load.Vaddr%load.Align != load.Off%load.Align || load.Align%0x10000 != 0 {
			t.Errorf("%s: the file does not load with pages of 64 KiB: %+v", architecture, load.ProgHeader)
		}
		if stack.Type != elf.PT_GNU_STACK || stack.Flags&elf.PF_X != 0 {
			t.Errorf("%s: the stack is executable: %+v", architecture, stack.ProgHeader)
		}
	}
}

func TestProgramsCallExit(t *testing.T) {
	for architecture, want := range map[string]struct {
		decode func([]byte) (text string, size int, err error)
		code   []string
	}{
		"amd64": {decodeAMD64, []string{
			"XOR EDI, EDI", "MOV EAX, 0xe7", "SYSCALL",
			"XOR EDI, EDI", "MOV EAX, 0x3c", "SYSCALL",
			"UD2",
		}},
		"arm64": {decodeARM64, []string{
			"MOV X0, #0x0", "MOV X8, #0x5e", "SVC #0x0",
			"MOV X0, #0x0", "MOV X8, #0x5d", "SVC #0x0",
			"BRK #0x0",
		}},
	} {
		content := assemble(t, architecture)
		file, err := elf.NewFile(bytes.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for code := content[file.Entry-file.Progs[0].Vaddr:]; len(code) > 0; {
			text, size, err := want.decode(code)
			if err != nil {
				t.Fatalf("%s: decode % x: %v", architecture, code, err)
			}
			got, code = append(got, text), code[size:]
		}
		if !slices.Equal(got, want.code) {
			t.Errorf("%s: the instructions are %q, want %q", architecture, got, want.code)
		}
	}
}

func decodeAMD64(code []byte) (text string, size int, err error) {
	instruction, err := x86asm.Decode(code, 64)
	return instruction.String(), instruction.Len, err
}

func decodeARM64(code []byte) (text string, size int, err error) {
	if len(code) < 4 {
		return "", 0, fmt.Errorf("%d bytes are left", len(code))
	}
	instruction, err := arm64asm.Decode(code)
	return instruction.String(), 4, err
}
